package provider_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcrnamespace "sigs.k8s.io/multicluster-runtime/providers/namespace"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends/provider"
	"github.com/tributary-fleet/tributary/internal/endtoend"
)

// A field index is there in every cluster of another provider, also where they share one cache, and answers within the cluster.
func TestIndex(t *testing.T) {
	hub := plane(t, "hub")
	admin := endtoend.AdminClient(t, hub)
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithHub(hub))
	add(t, f, "namespaces", provider.Options{Provider: mcrnamespace.New(f.Manager.GetLocalManager())})
	err := f.IndexField(t.Context(), &corev1.ConfigMap{}, "color", func(obj client.Object) []string {
		return []string{obj.(*corev1.ConfigMap).Data["color"]}
	})
	if err != nil {
		t.Fatal(err)
	}
	// The second cluster comes when the cache that both share has the index already.
	for _, object := range []string{"first", "second"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
		if err := admin.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		for name, color := range map[string]string{object: "red", "other": "blue"} {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}, Data: map[string]string{"color": color}}
			if err := admin.Create(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
		}
		name := "namespaces/" + ns.Name
		for _, object := range []string{object, "other"} {
			endtoend.Eventually(t, object+" is reconciled", func() bool { return f.Saw(name, "default/"+object) > 0 })
		}
		cl, err := f.Get(t.Context(), endtoend.Name(name))
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.ConfigMapList
		if err := cl.GetCache().List(t.Context(), &list, client.MatchingFields{"color": "red"}); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != object {
			t.Errorf("red in %s: %v, want %s alone", name, list.Items, object)
		}
	}
}
