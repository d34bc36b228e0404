package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Schema returns the JSON schema (draft 2020-12) of fleet files with these kinds, for editors. It is made of the types, so it
// knows every field and its type; what else [Parse] checks is beyond it.
func Schema(kinds *Registry) ([]byte, error) {
	backend := object(reflect.TypeFor[Backend]())
	properties := backend["properties"].(map[string]any)
	properties["kind"] = map[string]any{"enum": kinds.Kinds()}
	properties["options"] = map[string]any{"type": []string{"object", "null"}}
	backend["required"] = []string{"name", "kind"}
	var perKind []any
	for _, name := range kinds.Kinds() {
		perKind = append(perKind, map[string]any{
			"if":   map[string]any{"required": []string{"kind"}, "properties": map[string]any{"kind": map[string]any{"const": name}}},
			"then": map[string]any{"properties": map[string]any{"options": schemaOf(kinds.kinds[name].options)}},
		})
	}
	backend["allOf"] = perKind

	fleet := object(reflect.TypeFor[Fleet]())
	fleet["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	fleet["title"] = "Tributary fleet"
	fleet["required"] = []string{"apiVersion", "kind", "backends"}
	properties = fleet["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"const": APIVersion}
	properties["kind"] = map[string]any{"const": Kind}
	properties["backends"] = map[string]any{"type": "array", "items": backend}
	text, err := json.MarshalIndent(fleet, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make schema of fleet files: %w", err)
	}
	return append(text, '\n'), nil
}

// object returns the schema of a struct, as the decoder reads it.
func object(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for f := range t.Fields() {
		if name := nameOf(f); name != "" {
			properties[name] = schemaOf(f.Type)
		}
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

// schemaOf returns the schema of a value that may also be null, which means that it is left out.
func schemaOf(t reflect.Type) map[string]any {
	kind := func(name string) map[string]any { return map[string]any{"type": []string{name, "null"}} }
	switch {
	case t == reflect.TypeFor[time.Duration]():
		s := kind("string")
		s["description"] = "a duration such as 90s or 5m"
		return s
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return kind("string")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Struct:
		s := object(t)
		s["type"] = []string{"object", "null"}
		return s
	case reflect.Slice:
		s := kind("array")
		items := schemaOf(t.Elem())
		if list, ok := items["type"].([]string); ok {
			items["type"] = list[0] // an entry of a list is never left out
		}
		s["items"] = items
		return s
	case reflect.Bool:
		return kind("boolean")
	case reflect.Int:
		return kind("integer")
	case reflect.Float64:
		return kind("number")
	}
	return kind("string")
}
