package capi_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// patch changes a Cluster.
func (m *management) patch(t *testing.T, name, patch string) {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}}
	if err := m.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// remove deletes a Cluster and its kubeconfig.
func (m *management) remove(t *testing.T, name string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: m.namespace, Name: name}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name + "-kubeconfig"}}
	for _, obj := range []client.Object{&clusterv1.Cluster{ObjectMeta: meta}, secret} {
		if err := m.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// A Cluster is moved from one management cluster to another, step by step as clusterctl does it. Both are backends under one
// prefix, so the cluster is the same throughout, under its one name, and nobody feels the move.
func TestClusterctlMove(t *testing.T) {
	from, to := newManagement(t, "management"), newManagement(t, "other-management")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: from.namespace}}
	if err := to.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	to.namespace = from.namespace
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	proxy := endtoend.Counting(t, plane)
	kubeconfig := endtoend.Kubeconfig(t, proxy.URL(), proxy.CAData(), endtoend.Issue(t, endtoend.NewUser(t, plane, controlplane.Everything()...)).Token())

	f := endtoend.Start(t, aggregate.Options{})
	for name, hub := range map[string]*management{"from": from, "to": to} {
		backend, err := capi.New(capi.Options{Hub: hub.plane.Config(), Namespaces: []string{hub.namespace}})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Add(name, backend, aggregate.BackendOptions{Prefix: "prod"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Arrange("prod", "from", "to"); err != nil {
		t.Fatal(err)
	}
	from.provision(t, "moved")
	from.writeKubeconfig(t, "moved", kubeconfig)
	public := "prod/" + from.namespace + "/moved"
	endtoend.Eventually(t, "engaged", func() bool { return f.Engaged(public) })
	before, err := f.Get(t.Context(), endtoend.Name(public))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	interrupted := make(chan aggregate.Change, 1)
	go func() {
		defer close(interrupted)
		for change := range f.Subscribe(ctx) {
			if change.Gone || change.State != backends.Engaged {
				interrupted <- change
				return
			}
		}
	}()
	var objects []string
	create := func() { objects = append(objects, endtoend.ConfigMap(t, plane, "moved")) }
	create()
	endtoend.Eventually(t, "reconciled", func() bool { return f.Saw(public, objects[0]) > 0 })
	proxy.Counter.Reset()

	from.patch(t, "moved", `{"spec":{"paused":true}}`)
	create()
	to.provision(t, "moved")
	to.patch(t, "moved", `{"spec":{"paused":true}}`)
	to.writeKubeconfig(t, "moved", kubeconfig)
	create()
	from.patch(t, "moved", `{"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}}`)
	from.remove(t, "moved")
	create()
	to.patch(t, "moved", `{"spec":{"paused":false}}`)
	endtoend.Eventually(t, "served by the hub that it was moved to", func() bool {
		s := f.Status(public)
		return s.Backend == "to" && s.State == backends.Engaged && s.Reason == backends.ReasonReady
	})
	create()
	for _, object := range objects {
		endtoend.Eventually(t, object+" is reconciled", func() bool { return f.Saw(public, object) > 0 })
		if n := f.Saw(public, object); n != 1 {
			t.Errorf("%s was reconciled %d times", object, n)
		}
	}
	stop()
	if change, any := <-interrupted; any {
		t.Errorf("interrupted: %s (%s) %s", change.State, change.Reason, change.Message)
	}
	if now, err := f.Get(t.Context(), endtoend.Name(public)); err != nil || now != before {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}
	if n := proxy.Counter.Relists(); n > 0 {
		t.Errorf("%d lists", n)
	}
}
