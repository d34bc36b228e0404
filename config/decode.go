package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// decoder turns YAML nodes into typed values, notes where each field stands, and collects everything that is wrong
// instead of stopping at the first.
type decoder struct {
	places map[string]*yaml.Node // by the field's path
	found  []*Finding
}

// report adds a finding at a node.
func (d *decoder) report(n *yaml.Node, at *field.Path, kind field.ErrorType, format string, args ...any) {
	d.found = append(d.found, &Finding{Line: n.Line, Column: n.Column,
		Err: &field.Error{Type: kind, Field: pathOf(at), BadValue: "", Detail: fmt.Sprintf(format, args...)}})
}

// reportAt adds a finding at a field, or at the nearest field around it that the file has.
func (d *decoder) reportAt(at string, kind field.ErrorType, format string, args ...any) {
	f := &Finding{Err: &field.Error{Type: kind, Field: at, BadValue: "", Detail: fmt.Sprintf(format, args...)}}
	for p := at; ; p = p[:strings.LastIndexAny(p, ".[")] {
		if n := d.places[p]; n != nil {
			f.Line, f.Column = n.Line, n.Column
			break
		}
		if !strings.ContainsAny(p, ".[") {
			if n := d.places[""]; n != nil {
				f.Line, f.Column = n.Line, n.Column
			}
			break
		}
	}
	d.found = append(d.found, f)
}

func pathOf(at *field.Path) string {
	if at == nil {
		return ""
	}
	return at.String()
}

func child(at *field.Path, name string) *field.Path {
	if at == nil {
		return field.NewPath(name)
	}
	return at.Child(name)
}

// plainName is what can stand in a field's path as it is.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,59}$`)

// entries returns the fields of a mapping by name, and reports what is no field and what is there twice.
func (d *decoder) entries(n *yaml.Node, at *field.Path, known []string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		d.report(n, at, field.ErrorTypeTypeInvalid, "must be a mapping of fields, and is %s", describe(n))
		return nil
	}
	fields := map[string]*yaml.Node{}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.report(key, at, field.ErrorTypeInvalid, "the name of a field must be a plain word")
			continue
		}
		isKnown := slices.Contains(known, key.Value)
		path := child(at, key.Value)
		if !plainName.MatchString(key.Value) {
			path = child(at, strconv.Quote(short(key.Value)))
		}
		if first, twice := lines[key.Value]; twice {
			d.report(key, path, field.ErrorTypeDuplicate, "duplicate field, first set in line %d", first)
			continue
		}
		lines[key.Value] = key.Line
		if !isKnown {
			if meant := nearest(key.Value, known); meant != "" {
				d.report(key, path, field.ErrorTypeNotSupported, "unknown field, did you mean %q?", meant)
			} else {
				d.report(key, path, field.ErrorTypeNotSupported, "unknown field; known here: %s", strings.Join(known, ", "))
			}
			continue
		}
		d.places[pathOf(path)] = key
		fields[key.Value] = value
	}
	return fields
}

// names returns the names of a struct's fields in the file, in order.
func names(t reflect.Type) []string {
	var all []string
	for f := range t.Fields() {
		if name := nameOf(f); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// nameOf returns the name of a field in the file, or "" if it is not in the file.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

// isAbsent reports whether a node says nothing, which counts as a field that is not there.
func isAbsent(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// decode fills v, which is settable, from n.
func (d *decoder) decode(n *yaml.Node, at *field.Path, v reflect.Value) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.report(n, at, field.ErrorTypeForbidden, "YAML anchors and aliases are not supported")
		return
	}
	if isAbsent(n) {
		return
	}
	if d.places[pathOf(at)] == nil {
		d.places[pathOf(at)] = n
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if n.Kind != yaml.ScalarNode || u.UnmarshalText([]byte(n.Value)) != nil {
			d.report(n, at, field.ErrorTypeInvalid, "must be %s", wanted(v.Type()))
		}
		return
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		parsed, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			d.report(n, at, field.ErrorTypeInvalid, "must be %s", wanted(v.Type()))
			return
		}
		v.SetInt(int64(parsed))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, at, v.Elem())
	case reflect.Struct:
		fields := d.entries(n, at, names(v.Type()))
		for f, value := range v.Fields() {
			if node := fields[nameOf(f)]; node != nil {
				d.decode(node, child(at, nameOf(f)), value)
			}
		}
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.report(n, at, field.ErrorTypeTypeInvalid, "must be a list, and is %s", describe(n))
			return
		}
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			if isAbsent(item) {
				d.report(item, at.Index(i), field.ErrorTypeRequired, "must not be empty")
				continue
			}
			d.decode(item, at.Index(i), list.Index(i))
		}
		v.Set(list)
	default:
		d.scalar(n, at, v)
	}
}

func (d *decoder) scalar(n *yaml.Node, at *field.Path, v reflect.Value) {
	ok := n.Kind == yaml.ScalarNode
	switch v.Kind() {
	case reflect.String:
		ok = ok && n.Tag == "!!str"
		if ok {
			v.SetString(n.Value)
		}
	case reflect.Bool:
		var b bool
		ok = ok && n.Tag == "!!bool" && n.Decode(&b) == nil
		v.SetBool(b)
	case reflect.Int:
		var i int
		ok = ok && n.Tag == "!!int" && n.Decode(&i) == nil
		v.SetInt(int64(i))
	case reflect.Float64:
		var x float64
		ok = ok && (n.Tag == "!!float" || n.Tag == "!!int") && n.Decode(&x) == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
		v.SetFloat(x)
	default:
		d.report(n, at, field.ErrorTypeInternal, "a field of Go type %s cannot be set in a file", v.Type())
		return
	}
	if ok {
		return
	}
	hint := ""
	if v.Kind() == reflect.String && n.Kind == yaml.ScalarNode {
		hint = "; put it in quotes"
	}
	d.report(n, at, field.ErrorTypeTypeInvalid, "must be %s, and is %s%s", wanted(v.Type()), describe(n), hint)
}

// wanted says in words what a field of a type holds.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s or 5m"
	case t.String() == "netip.Prefix":
		return "a network such as 10.0.0.0/8"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return "a " + t.Name()
}

// describe says in words what a node is.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!str":
		return "a string"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	}
	return "something else"
}

// short keeps a name that is quoted in a finding readable.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
