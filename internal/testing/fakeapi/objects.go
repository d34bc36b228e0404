package fakeapi

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Put creates or replaces an object of a kind that the cluster serves. Its resourceVersion and creationTimestamp are set by the
// store, as is its UID if it has none; obj itself is left alone.
func (c *Cluster) Put(obj client.Object) error {
	kind, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	u, err := toUnstructured(obj)
	if err != nil {
		return err
	}
	u.SetGroupVersionKind(kind.GroupVersionKind)
	_, err = c.store.put(kind.key(), u)
	return err
}

// Delete removes an object, told by kind, namespace and name. Removing what does not exist is an error.
func (c *Cluster) Delete(obj client.Object) error {
	kind, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	if _, ok := c.store.delete(kind.key(), obj.GetNamespace(), obj.GetName()); !ok {
		return fmt.Errorf("delete %s %s/%s: no such object", kind.Resource, obj.GetNamespace(), obj.GetName())
	}
	return nil
}

// SetUID sets the UID of the namespace kube-system, by which the cluster is known. It is "uid-of-" and the name at first; with
// an empty one, there is no such namespace.
func (c *Cluster) SetUID(uid string) {
	const key = "/namespaces"
	if uid == "" {
		c.store.delete(key, "", metav1.NamespaceSystem)
		return
	}
	u, err := toUnstructured(&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	})
	if err == nil {
		_, err = c.store.put(key, u)
	}
	if err != nil {
		panic(err) // a Namespace always converts
	}
}

// EndWatches ends the open watches of a resource in order, as a server does when their time is up; "" ends those of all. The
// resource is named with its group: "/configmaps", "apps/deployments".
func (c *Cluster) EndWatches(resource string) {
	c.store.endWatches(func(key string) bool { return resource == "" || key == resource })
}

// Expire forgets the past: a watch that begins from a resourceVersion handed out so far is answered with 410 Gone. Open ones go on.
func (c *Cluster) Expire() { c.store.compact() }

func (k Kind) key() string { return k.Group + "/" + k.Resource }

func (c *Cluster) kindOf(obj client.Object) (Kind, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme.Scheme)
	if err != nil {
		return Kind{}, fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	c.mu.Lock()
	s := c.surface
	c.mu.Unlock()
	for _, k := range s.kinds {
		if k.GroupVersionKind == gvk {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("cluster %s does not serve %s", c.name, gvk)
}

func toUnstructured(obj any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", obj, err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &u.Object); err != nil {
		return nil, fmt.Errorf("convert %T: %w", obj, err)
	}
	return u, nil
}

// decode reads the body of a write, which is JSON, or protobuf of a built-in type.
func decode(body []byte) (*unstructured.Unstructured, error) {
	if !strings.HasPrefix(string(body), "k8s\x00") {
		u := &unstructured.Unstructured{}
		err := json.Unmarshal(body, &u.Object)
		return u, err
	}
	obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	u, err := toUnstructured(obj)
	if err == nil && gvk != nil {
		u.SetGroupVersionKind(*gvk)
	}
	return u, err
}

// target is what a request for objects names.
type target struct {
	kind            Kind
	namespace, name string
}

// parse finds out what a path names. Not ok: nothing that the cluster serves.
func (s *surface) parse(path string) (target, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(segments) > 2 && segments[0] == "api":
		gv, segments = schema.GroupVersion{Version: segments[1]}, segments[2:]
	case len(segments) > 3 && segments[0] == "apis":
		gv, segments = schema.GroupVersion{Group: segments[1], Version: segments[2]}, segments[3:]
	default:
		return target{}, false
	}
	var t target
	if segments[0] == "namespaces" && len(segments) > 2 {
		t.namespace, segments = segments[1], segments[2:]
	}
	if len(segments) > 2 {
		return target{}, false // subresources
	}
	if len(segments) == 2 {
		t.name = segments[1]
	}
	var ok bool
	t.kind, ok = s.find(gv.WithResource(segments[0]))
	return t, ok
}
