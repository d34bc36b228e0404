package connection

import (
	"encoding/json"
	"math"

	"go.yaml.in/yaml/v3"
)

// toJSON returns a YAML value as JSON with sorted keys. It has been verified, so it holds no alias.
func toJSON(n *yaml.Node) (string, bool) {
	v, ok := jsonValue(n)
	if !ok {
		return "", false
	}
	text, err := json.Marshal(v)
	return string(text), err == nil
}

func jsonValue(n *yaml.Node) (any, bool) {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, ok := jsonValue(n.Content[i+1])
			if !ok {
				return nil, false
			}
			m[n.Content[i].Value] = v
		}
		return m, true
	case yaml.SequenceNode:
		s := make([]any, 0, len(n.Content))
		for _, element := range n.Content {
			v, ok := jsonValue(element)
			if !ok {
				return nil, false
			}
			s = append(s, v)
		}
		return s, true
	case yaml.ScalarNode:
		return jsonScalar(n)
	}
	return nil, false
}

func jsonScalar(n *yaml.Node) (v any, ok bool) {
	switch n.Tag {
	case "!!null":
		return nil, true
	case "!!bool", "!!int":
		err := n.Decode(&v)
		return v, err == nil
	case "!!float":
		var f float64
		err := n.Decode(&f)
		return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
	}
	return n.Value, true
}
