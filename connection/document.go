package connection

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseDocument parses data as exactly one YAML document (JSON is YAML), and returns its root, an object.
// It refuses whatever two readers could understand differently.
func parseDocument(object string, data []byte) (_ *yaml.Node, err error) {
	defer func() {
		// A panic in the parser over one inventory entry must not take the whole fleet down.
		if recover() != nil {
			err = &ParseError{Object: object, Problem: ProblemSyntax}
		}
	}()
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, &ParseError{Object: object, Problem: ProblemEmpty}
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return nil, &ParseError{Object: object, Problem: ProblemSyntax} // UTF-16, which other readers do not take
	}
	if line, deep := nestedTooDeep(data); deep {
		return nil, &ParseError{Object: object, Line: line, Problem: ProblemNesting}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, &ParseError{Object: object, Problem: ProblemEmpty}
	} else if err != nil {
		return nil, &ParseError{Object: object, Line: lineOf(err), Problem: ProblemSyntax}
	}
	root := document.Content[0]
	if isNull(root) {
		return nil, &ParseError{Object: object, Problem: ProblemEmpty}
	}
	var next yaml.Node
	if err := decoder.Decode(&next); err == nil && !(isNull(next.Content[0]) && next.Content[0].Value == "") {
		return nil, &ParseError{Object: object, Line: next.Content[0].Line, Problem: ProblemSeveralDocuments}
	} else if err != nil && !errors.Is(err, io.EOF) {
		return nil, &ParseError{Object: object, Problem: ProblemSeveralDocuments}
	}
	if root.Kind == yaml.ScalarNode && encodedTwice(root.Value) {
		return nil, &ParseError{Object: object, Problem: ProblemDoubleBase64}
	}
	if root.Kind != yaml.MappingNode {
		return nil, &ParseError{Object: object, Problem: ProblemNotAnObject}
	}
	if bad, problem := verify(root); bad != nil {
		return nil, &ParseError{Object: object, Line: bad.Line, Problem: problem}
	}
	return root, nil
}

// verify returns the first node with which something is wrong that the fields do not matter for.
func verify(n *yaml.Node) (*yaml.Node, Problem) {
	if n.Kind == yaml.AliasNode || n.Style&yaml.TaggedStyle != 0 && n.ShortTag() != "!!str" {
		return n, ProblemAlias
	}
	if n.Kind == yaml.MappingNode {
		if bad, problem := verifyKeys(n); bad != nil {
			return bad, problem
		}
	}
	for _, child := range n.Content {
		if child.Kind == yaml.ScalarNode && child.Style&yaml.TaggedStyle == 0 {
			continue
		}
		if bad, problem := verify(child); bad != nil {
			return bad, problem
		}
	}
	return nil, ""
}

func verifyKeys(n *yaml.Node) (*yaml.Node, Problem) {
	const few = 16
	var seen map[string]bool
	if len(n.Content) > 2*few {
		seen = make(map[string]bool, len(n.Content)/2)
	}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind == yaml.AliasNode || key.Tag == "!!merge":
			return key, ProblemAlias
		case key.Kind != yaml.ScalarNode:
			return key, ProblemType
		}
		if seen != nil {
			if seen[key.Value] {
				return key, ProblemDuplicateKey
			}
			seen[key.Value] = true
			continue
		}
		for j := 0; j < i; j += 2 {
			if n.Content[j].Value == key.Value {
				return key, ProblemDuplicateKey
			}
		}
	}
	return nil, ""
}

// lineOf returns the line number that a YAML error states, and nothing else of its text.
func lineOf(err error) int {
	_, rest, ok := strings.Cut(err.Error(), "yaml: line ")
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// encodedTwice reports whether text is base64 of something that looks like a kubeconfig or JSON.
func encodedTwice(text string) bool {
	decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	return err == nil && (bytes.HasPrefix(decoded, []byte("{")) || bytes.Contains(decoded, []byte("clusters:")))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// entry reads the fields of one object, and keeps the first problem and the names of fields it does not know.
type entry struct {
	object string // as in ParseError
	list   string // the list that the entry stands in; empty for an object that is alone
	name   string

	problem *ParseError
	ignored []string
}

// field names one of the entry's fields.
func (e *entry) field(name string) string {
	if e.list == "" {
		return name
	}
	return fieldPath(e.list, e.name, name)
}

// fail notes a problem, unless there is one already.
func (e *entry) fail(field string, line int, p Problem) {
	if e.problem == nil {
		e.problem = &ParseError{Object: e.object, Field: e.field(field), Line: line, Problem: p}
	}
}

// mostIgnored is how many ignored fields of one entry are told by name. Data may have any number of them, and each
// context tells them again.
const mostIgnored = 32

// unknown notes a field that is not known, below prefix. Its name is data: a credential may have slipped into the
// place of a key, so only what looks like the name of a field is repeated.
func (e *entry) unknown(prefix string, key, value *yaml.Node) {
	if len(e.ignored) > mostIgnored {
		return
	}
	if len(e.ignored) == mostIgnored {
		e.ignored = append(e.ignored, e.field("(and more)"))
		return
	}
	name := key.Value
	plausible := len(name) <= 40 && !isNull(value)
	for _, c := range []byte(name) {
		plausible = plausible && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-')
	}
	if !plausible {
		name = "(a field with an unusual name)"
	}
	e.ignored = append(e.ignored, e.field(prefix+name))
}

// each calls f for every field of an object.
func (e *entry) each(field string, n *yaml.Node, f func(key string, k, v *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		e.fail(field, n.Line, ProblemType)
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f(n.Content[i].Value, n.Content[i], n.Content[i+1])
	}
}

// text returns a string. A number or truth value is taken as it is written, null is the empty string.
func (e *entry) text(field string, n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		e.fail(field, n.Line, ProblemType)
		return ""
	}
	if isNull(n) {
		return ""
	}
	return n.Value
}

// boolean returns a truth value; null is false.
func (e *entry) boolean(field string, n *yaml.Node) bool {
	var b bool
	if isNull(n) {
		return false
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
		e.fail(field, n.Line, ProblemType)
	}
	return b
}

// list calls f for every element of a list.
func (e *entry) elements(field string, n *yaml.Node, f func(*yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		e.fail(field, n.Line, ProblemType)
		return
	}
	for _, element := range n.Content {
		f(element)
	}
}

// texts returns a list of strings.
func (e *entry) texts(field string, n *yaml.Node) (all []string) {
	e.elements(field, n, func(element *yaml.Node) { all = append(all, e.text(field, element)) })
	return all
}
