package hub

import (
	"encoding/base64"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// Secrets is the kind Secret.
func Secrets() Kind { return Kind{Resource: "secrets", Versions: []string{"v1"}, BuiltIn: true} }

// Secret is the view of a Secret. Formatting one shows no data.
type Secret struct {
	Reference backends.ObjectReference
	Created   time.Time
	Labels    map[string]string
	// Data holds the values of the wanted keys, as far as the Secret has them.
	Data map[string]connection.Secret
}

// Key returns "namespace/name".
func (s Secret) Key() string { return s.Reference.Namespace + "/" + s.Reference.Name }

// ViewSecret returns a view that holds the data of some keys only: credentials that nobody needs are not kept.
func ViewSecret(u *unstructured.Unstructured, keys ...string) Secret {
	s := Secret{
		Reference: Reference(u),
		Created:   u.GetCreationTimestamp().Time,
		Labels:    u.GetLabels(),
		Data:      map[string]connection.Secret{},
	}
	data, _, _ := unstructured.NestedFieldNoCopy(u.Object, "data")
	encoded, _ := data.(map[string]any)
	for _, key := range keys {
		value, _ := encoded[key].(string)
		// The API server sends nothing but valid base64.
		if decoded, err := base64.StdEncoding.DecodeString(value); err == nil && len(decoded) > 0 {
			s.Data[key] = connection.NewSecret(string(decoded))
		}
	}
	return s
}

// Reference returns the reference to an object.
func Reference(u *unstructured.Unstructured) backends.ObjectReference {
	return backends.ObjectReference{
		APIVersion: u.GetAPIVersion(), Kind: u.GetKind(),
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()),
	}
}
