package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// Of three connections in quick succession, the last one is in force, and the ones before it never do harm.
func TestUpdatesInQuickSuccession(t *testing.T) {
	server := endtoend.Fakes(t)
	c := server.Cluster("c")
	for _, token := range []string{"first", "good", "good2"} {
		c.AllowToken(token, "user")
	}
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "x")
	declare := func(token string) { inv.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, "c", token)) }
	declare("first")
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("x/c", backends.Engaged, backends.ReasonReady) })
	cl, err := f.Get(t.Context(), "x/c")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		declare("bad")
		declare("good")
		declare("good2")
	}
	endtoend.Eventually(t, "the last one is in force", func() bool {
		config, err := f.RESTConfigFor(t.Context(), "x/c")
		return err == nil && config.BearerToken == "good2" && f.Is("x/c", backends.Engaged, backends.ReasonReady)
	})
	if now, err := f.Get(t.Context(), "x/c"); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}
}

// A cluster that is removed while it is being connected to leaves nothing behind.
func TestRemovedWhileConnecting(t *testing.T) {
	server := endtoend.Fakes(t)
	c := server.Cluster("c")
	c.SetFault("", fakeapi.Fault{Hang: true})
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "x")
	for range 20 {
		inv.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, "c", "token"))
		if _, err := f.Get(t.Context(), "x/c"); !errors.Is(err, backends.ErrNotEngaged) {
			t.Fatalf("Get while connecting: %v", err)
		}
		inv.Say().Disengage("c", backends.ReasonDeleted)
		if _, err := f.Get(t.Context(), "x/c"); !errors.Is(err, multicluster.ErrClusterNotFound) {
			t.Fatalf("Get after removal: %v", err)
		}
	}
	endtoend.Eventually(t, "nothing is left", func() bool { return len(f.Clusters()) == 0 })
}

// A cluster that is deleted and created again under the same name, at another server, never serves the old one's objects.
func TestRecreatedElsewhere(t *testing.T) {
	server := endtoend.Fakes(t)
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "x")
	for round := range 10 {
		fake := server.Cluster(fmt.Sprint("c", round))
		key := endtoend.PutConfigMap(t, fake, "mine")
		inv.Say().Engage(endtoend.FakeMember(fake, server.Addr(), server, "c", "token"))
		endtoend.Eventually(t, "reconciled in the new cluster", func() bool { return f.Saw("x/c", key) > 0 })
		cl, err := f.Get(t.Context(), "x/c")
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.ConfigMapList
		if err := cl.GetClient().List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			if cm.Namespace+"/"+cm.Name != key {
				t.Errorf("round %d: the cluster serves %s of an earlier one", round, cm.Name)
			}
		}
		inv.Say().Disengage("c", backends.ReasonDeleted)
	}
}

// Hundreds of engagements and replacements leave no goroutine, connection or memory behind.
func TestNothingIsLeftBehind(t *testing.T) {
	const cycles = 300
	server := endtoend.Fakes(t)
	a, b := server.Cluster("a"), server.Cluster("b")
	// multicluster-runtime's controllers keep one goroutine for every engagement until they stop, so this fleet has none.
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithoutController())
	inv := f.Declare(t, "x")
	ready := func() bool { return f.Is("x/c", backends.Engaged, backends.ReasonReady) }
	cycle := func() {
		inv.Say().Engage(endtoend.FakeMember(a, server.Addr(), server, "c", "token"))
		endtoend.Eventually(t, "engaged", ready)
		cl, err := f.Get(t.Context(), "x/c")
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.ConfigMapList
		if err := cl.GetClient().List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		inv.Say().Engage(endtoend.FakeMember(b, server.Addr(), server, "c", "token"))
		endtoend.Eventually(t, "replaced", func() bool { return f.Status("x/c").UID == "uid-of-b" && ready() })
		inv.Say().Disengage("c", backends.ReasonDeleted)
		endtoend.Eventually(t, "gone", func() bool { return len(f.Clusters()) == 0 })
	}
	for range 20 {
		cycle()
	}
	goroutines, heap := settled()
	for range cycles {
		cycle()
	}
	backTo(t, goroutines, heap)
}

// backTo waits until there are no more goroutines than before, and not much more memory is in use. For up to net/http's ping interval,
// 15 s, a timer of its HTTP/2 client holds on to every connection that was closed.
func backTo(t *testing.T, goroutines int, heap uint64) {
	t.Helper()
	endtoend.Eventually(t, "the goroutines are back to where they were", func() bool {
		now, _ := settled()
		return now <= goroutines+5
	})
	limit := heap + heap/4 + 2<<20
	endtoend.Eventually(t, fmt.Sprintf("the heap is back to %d KiB, from %d KiB before", limit>>10, heap>>10), func() bool {
		_, now := settled()
		return now <= limit
	})
}

// settled returns the goroutines and the heap in use, after a collection.
func settled() (goroutines int, heap uint64) {
	http.DefaultClient.CloseIdleConnections()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

// Indexes are added without waiting for anybody, whenever they are asked for, and every cluster has them.
func TestIndexes(t *testing.T) {
	server := endtoend.Fakes(t)
	extract := func(o client.Object) []string { return []string{o.GetName()} }
	silentServer := endtoend.Silent(t)
	f := endtoend.Start(t, aggregate.Options{}, endtoend.Before(func(f *endtoend.Fleet) {
		for range 2 { // repeating one does nothing
			if err := f.Manager.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "early", extract); err != nil {
				t.Fatal(err)
			}
		}
	}))
	inv := f.Declare(t, "x")
	one, two := server.Cluster("one"), server.Cluster("two")
	inv.Say().Engage(endtoend.FakeMember(one, silentServer, server, "silent", "token"))
	inv.Say().Engage(endtoend.FakeMember(one, server.Addr(), server, "one", "token"))
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("x/one", backends.Engaged, backends.ReasonReady) })
	for range 2 {
		if err := f.Manager.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "late", extract); err != nil {
			t.Fatal(err)
		}
		if err := f.Manager.GetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, "late", extract); err != nil {
			t.Fatal(err)
		}
	}
	inv.Say().Engage(endtoend.FakeMember(two, server.Addr(), server, "two", "token"))
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("x/two", backends.Engaged, backends.ReasonReady) })
	for name, fake := range map[string]*fakeapi.Cluster{"one": one, "two": two} {
		key := endtoend.PutConfigMap(t, fake, "indexed")
		endtoend.Eventually(t, "reconciled", func() bool { return f.Saw("x/"+name, key) > 0 })
		cl, err := f.Get(t.Context(), multicluster.ClusterName("x/"+name))
		if err != nil {
			t.Fatal(err)
		}
		for _, index := range []string{"early", "late"} {
			var list corev1.ConfigMapList
			if err := cl.GetClient().List(t.Context(), &list, client.MatchingFields{index: key[len("default/"):]}); err != nil || len(list.Items) != 1 {
				t.Errorf("%s: list by index %s: %d items, %v", name, index, len(list.Items), err)
			}
		}
	}
	if err := f.IndexField(context.Background(), nil, "x", extract); err == nil {
		t.Error("an index of nothing was taken")
	}
}
