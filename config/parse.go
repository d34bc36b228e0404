package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tributary-fleet/tributary/backends"
)

// MaxSize is how large a fleet file may be: 1 MiB.
const MaxSize = 1 << 20

// Load reads and checks a fleet file. See [Parse].
func Load(path string, kinds *Registry) (*Fleet, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parseFile(path, data, kinds)
}

// readFile reads no more than shows that a file is too large.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load fleet file: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("load fleet file: %w", err)
	}
	return data, nil
}

func parseFile(path string, data []byte, kinds *Registry) (*Fleet, error) {
	fleet, err := Parse(data, kinds)
	if err != nil {
		return nil, fmt.Errorf("load fleet file %s: %w", path, err)
	}
	return fleet, nil
}

// Parse reads and checks a fleet file's contents. Nothing is opened or requested. Where the file is not right, the error
// has all [Findings], and no Fleet is returned.
func Parse(data []byte, kinds *Registry) (*Fleet, error) {
	d := &decoder{places: map[string]*yaml.Node{}}
	root := d.document(data)
	if root == nil {
		return nil, joined(d.found)
	}
	var fleet Fleet
	d.places[""] = root
	fields := d.entries(root, nil, names(reflect.TypeFor[Fleet]()))
	if fields == nil {
		return nil, joined(d.found)
	}
	d.header(fields["apiVersion"], "apiVersion", APIVersion, &fleet.APIVersion)
	d.header(fields["kind"], "kind", Kind, &fleet.Kind)
	list := fields["backends"]
	at := field.NewPath("backends")
	switch {
	case list == nil || isAbsent(list):
		d.reportAt("backends", field.ErrorTypeRequired, "required: a list of backends, which may be []")
	case list.Kind != yaml.SequenceNode:
		d.report(list, at, field.ErrorTypeTypeInvalid, "must be a list, and is %s", describe(list))
	default:
		fleet.Backends = make([]Backend, len(list.Content))
		for i, n := range list.Content {
			d.backend(n, at.Index(i), &fleet.Backends[i], kinds)
		}
	}
	d.uniqueNames(fleet.Backends)
	if err := joined(d.found); err != nil {
		return nil, err
	}
	return &fleet, nil
}

var syntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// document returns the mapping that a file consists of, or nil.
func (d *decoder) document(data []byte) *yaml.Node {
	if len(data) > MaxSize {
		d.reportAt("", field.ErrorTypeTooLong, "the file is larger than 1 MiB")
		return nil
	}
	stream := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := stream.Decode(&doc)
	if err == nil && len(doc.Content) == 1 && !isAbsent(doc.Content[0]) {
		switch err := stream.Decode(&more); {
		case errors.Is(err, io.EOF):
			return doc.Content[0]
		case err == nil:
			d.report(&more, nil, field.ErrorTypeForbidden, "a second document begins here, and a file holds one fleet")
			return nil
		default:
			d.syntax(err)
			return nil
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		d.reportAt("", field.ErrorTypeRequired, "the file is empty; it must hold a %s of %s", Kind, APIVersion)
		return nil
	}
	d.syntax(err)
	return nil
}

// syntax reports what the YAML parser says. At this stage it speaks of the form, and not of values.
func (d *decoder) syntax(err error) {
	f := &Finding{Err: &field.Error{Type: field.ErrorTypeInvalid, BadValue: "", Detail: "not valid YAML"}}
	if m := syntaxError.FindStringSubmatch(err.Error()); m != nil {
		f.Line, _ = strconv.Atoi(m[1])
		f.Column = 1
		f.Err.Detail += ": " + m[2]
	}
	d.found = append(d.found, f)
}

// header reads a field that has one right value.
func (d *decoder) header(n *yaml.Node, name, want string, to *string) {
	if n == nil || isAbsent(n) {
		d.reportAt(name, field.ErrorTypeRequired, "required: %s", want)
		return
	}
	before := len(d.found)
	d.decode(n, field.NewPath(name), reflect.ValueOf(to).Elem())
	if *to != want && len(d.found) == before {
		d.report(n, field.NewPath(name), field.ErrorTypeNotSupported, "must be %s", want)
	}
}

// backend reads and checks one backend.
func (d *decoder) backend(n *yaml.Node, at *field.Path, b *Backend, kinds *Registry) {
	before := len(d.found)
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.report(n, at, field.ErrorTypeForbidden, "YAML anchors and aliases are not supported")
		return
	}
	if isAbsent(n) {
		d.report(n, at, field.ErrorTypeRequired, "must not be empty")
		return
	}
	d.places[pathOf(at)] = n
	fields := d.entries(n, at, append(names(reflect.TypeFor[Backend]()), "options"))
	if fields == nil {
		return
	}
	for f, v := range reflect.ValueOf(b).Elem().Fields() {
		if node := fields[nameOf(f)]; node != nil {
			d.decode(node, at.Child(nameOf(f)), v)
		}
	}
	d.label(at.Child("name"), b.Name, true)
	d.label(at.Child("prefix"), b.Prefix, false)
	if b.Guard.Share < 0 || b.Guard.Share > 1 {
		d.reportAt(at.Child("guard", "share").String(), field.ErrorTypeInvalid, "must be between 0 and 1")
	}
	k, known := kinds.kinds[b.Kind]
	switch {
	case b.Kind == "" && fields["kind"] == nil:
		d.reportAt(at.Child("kind").String(), field.ErrorTypeRequired, "required: one of %s", strings.Join(kinds.Kinds(), ", "))
	case !known:
		if meant := nearest(b.Kind, kinds.Kinds()); meant != "" {
			d.reportAt(at.Child("kind").String(), field.ErrorTypeNotSupported, "no such kind of backend, did you mean %s?", meant)
		} else {
			d.reportAt(at.Child("kind").String(), field.ErrorTypeNotSupported, "no such kind of backend; there are: %s", strings.Join(kinds.Kinds(), ", "))
		}
	}
	if !known {
		return
	}
	options := reflect.New(k.options)
	if node := fields["options"]; node != nil {
		d.decode(node, at.Child("options"), options.Elem())
	}
	b.Options = options.Interface()
	if len(d.found) > before {
		return // what the kind would say of half-read options only confuses
	}
	if _, err := k.build(b.Options, Environment{checking: true}); err != nil {
		for _, e := range flat(err) {
			name, text := inFileTerms(e.Error(), k.options)
			path := at.Child("options")
			if name != "" {
				path = path.Child(name)
			}
			d.reportAt(path.String(), field.ErrorTypeInvalid, "%s", text)
		}
	}
}

var (
	aboutBackend = regexp.MustCompile(`^(?:capi backend|inventory backend|kubeconfig backend|kubeconfig files): `)
	aboutOption  = regexp.MustCompile(`^option (\w+)(?:: | )`)
	aboutHub     = regexp.MustCompile(`^(hub\.\w+)(?:: | )`)
	word         = regexp.MustCompile(`\b[A-Z]\w+\b`)
)

// inFileTerms makes an error about Go options one about fields of the file: the field that it is about, if it is about
// one, and the rest of the text.
func inFileTerms(text string, options reflect.Type) (name, rest string) {
	rest = aboutBackend.ReplaceAllString(text, "")
	if m := aboutOption.FindStringSubmatch(rest); m != nil {
		if f, ok := options.FieldByName(m[1]); ok {
			name, rest = nameOf(f), rest[len(m[0]):]
		}
	}
	if m := aboutHub.FindStringSubmatch(rest); m != nil {
		name, rest = m[1], rest[len(m[0]):]
	}
	return name, word.ReplaceAllStringFunc(rest, func(w string) string {
		if f, ok := options.FieldByName(w); ok && nameOf(f) != "" {
			return nameOf(f)
		}
		return w
	})
}

// flat returns the errors that an error consists of.
func flat(err error) []error {
	if many, ok := errors.AsType[*multierror.Error](err); ok {
		return many.Errors
	}
	return []error{err}
}

// label checks a name that becomes a part of clusters' names.
func (d *decoder) label(at *field.Path, value string, required bool) {
	switch {
	case value == "" && d.places[at.String()] == nil && required:
		d.reportAt(at.String(), field.ErrorTypeRequired, "required")
	case value == "" && !required:
	case len(validation.IsDNS1123Label(value)) > 0:
		d.reportAt(at.String(), field.ErrorTypeInvalid, "must be a DNS label: at most 63 lower-case letters, digits and hyphens, with a letter or digit at both ends")
	}
}

func (d *decoder) uniqueNames(list []Backend) {
	first := map[string]int{}
	for i, b := range list {
		if b.Name == "" {
			continue
		}
		if earlier, taken := first[b.Name]; taken {
			d.reportAt(fmt.Sprintf("backends[%d].name", i), field.ErrorTypeDuplicate, "backends[%d] has this name already", earlier)
			continue
		}
		first[b.Name] = i
	}
}

// Build makes the backend of b. It reads the kubeconfig of its hub, if there is one, and makes no request.
func (b Backend) Build(kinds *Registry, env Environment) (backends.Backend, error) {
	k, known := kinds.kinds[b.Kind]
	if !known {
		return nil, fmt.Errorf("build backend %q: there is no kind %q", b.Name, b.Kind)
	}
	backend, err := k.build(b.Options, env)
	if err != nil {
		return nil, fmt.Errorf("build backend %q: %w", b.Name, err)
	}
	return backend, nil
}

// prefix returns what the backend's members are published under.
func (b Backend) prefix() string {
	if b.Prefix != "" {
		return b.Prefix
	}
	return b.Name
}
