package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

func newServer(t *testing.T) *fakeapi.Server {
	t.Helper()
	s := fakeapi.NewServer()
	t.Cleanup(s.Close)
	return s
}

// Of three connections in quick succession, the last one is in force, and the ones before it never do harm.
func TestUpdatesInQuickSuccession(t *testing.T) {
	server := newServer(t)
	c := server.Cluster("c")
	for _, token := range []string{"first", "good", "good2"} {
		c.AllowToken(token, "user")
	}
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "x")
	declare := func(token string) { inv.say().Engage(fakeMember(c, server.Addr(), server, "c", token)) }
	declare("first")
	eventually(t, "engaged", func() bool { return f.is("x/c", backends.Engaged, backends.ReasonReady) })
	cl, err := f.Get(t.Context(), "x/c")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		declare("bad")
		declare("good")
		declare("good2")
	}
	eventually(t, "the last one is in force", func() bool {
		config, err := f.RESTConfigFor(t.Context(), "x/c")
		return err == nil && config.BearerToken == "good2" && f.is("x/c", backends.Engaged, backends.ReasonReady)
	})
	if now, err := f.Get(t.Context(), "x/c"); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}
}

// A cluster that is removed while it is being connected to leaves nothing behind.
func TestRemovedWhileConnecting(t *testing.T) {
	server := newServer(t)
	c := server.Cluster("c")
	c.SetFault("", fakeapi.Fault{Hang: true})
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "x")
	for range 20 {
		inv.say().Engage(fakeMember(c, server.Addr(), server, "c", "token"))
		if _, err := f.Get(t.Context(), "x/c"); !errors.Is(err, backends.ErrNotEngaged) {
			t.Fatalf("Get while connecting: %v", err)
		}
		inv.say().Disengage("c", backends.ReasonDeleted)
		if _, err := f.Get(t.Context(), "x/c"); !errors.Is(err, multicluster.ErrClusterNotFound) {
			t.Fatalf("Get after removal: %v", err)
		}
	}
	eventually(t, "nothing is left", func() bool { return len(f.Clusters()) == 0 })
}

// A cluster that is deleted and created again under the same name, at another server, never serves the old one's objects.
func TestRecreatedElsewhere(t *testing.T) {
	server := newServer(t)
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "x")
	for round := range 10 {
		fake := server.Cluster(fmt.Sprint("c", round))
		key := put(t, fake, "mine")
		inv.say().Engage(fakeMember(fake, server.Addr(), server, "c", "token"))
		eventually(t, "reconciled in the new cluster", func() bool { return f.saw("x/c", key) > 0 })
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
		inv.say().Disengage("c", backends.ReasonDeleted)
	}
}

// Clusters that are engaged before and after the controllers start, under leader election and with a short
// ReconciliationTimeout, are all engaged, and a silent one among them kills nothing.
func TestLeaderElectionAndTimeouts(t *testing.T) {
	hub := planes.Get(t, controlplane.Options{Name: "one"})
	server := newServer(t)
	f := newFleet(t, aggregate.Options{}, withManager(hub, func(o *mcmanager.Options) {
		o.LeaderElection = true
		o.LeaderElectionID = fmt.Sprint("lease-", users.Add(1))
		o.LeaderElectionNamespace = "default"
		o.LeaderElectionResourceLock = resourcelock.LeasesResourceLock
		o.LeaderElectionReleaseOnCancel = true
		o.Controller.ReconciliationTimeout = 2 * time.Second
	}))
	inv := newInventory()
	if err := f.Add("x", inv, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	<-inv.running
	hung := server.Cluster("hung")
	hung.SetFault("/api/v1/configmaps", fakeapi.Fault{Hang: true})
	inv.say().Engage(fakeMember(hung, server.Addr(), server, "hung", "token"))
	for i := range 20 {
		name := fmt.Sprint("c", i)
		fake := server.Cluster(name)
		key := put(t, fake, "here")
		inv.say().Engage(fakeMember(fake, server.Addr(), server, name, "token"))
		if i == 10 {
			eventually(t, "one is reconciled, so the controllers run", func() bool { return f.saw("x/c10", key) > 0 })
		}
	}
	for i := range 20 {
		eventually(t, "engaged", func() bool { return f.is(fmt.Sprint("x/c", i), backends.Engaged, backends.ReasonReady) })
	}
	if s := f.status("x/hung"); s.State != backends.Engaged || s.Reason != backends.ReasonSyncing {
		t.Errorf("the one that hangs: %s (%s)", s.State, s.Reason)
	}
}

// Hundreds of engagements and replacements leave no goroutine, connection or memory behind.
func TestNothingIsLeftBehind(t *testing.T) {
	const cycles = 300
	server := newServer(t)
	a, b := server.Cluster("a"), server.Cluster("b")
	// multicluster-runtime's controllers keep one goroutine for every engagement until they stop, so this fleet has none.
	f := newFleet(t, aggregate.Options{}, option(withoutControllers))
	inv := started(t, f, "x")
	ready := func() bool { return f.is("x/c", backends.Engaged, backends.ReasonReady) }
	cycle := func() {
		inv.say().Engage(fakeMember(a, server.Addr(), server, "c", "token"))
		eventually(t, "engaged", ready)
		cl, err := f.Get(t.Context(), "x/c")
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.ConfigMapList
		if err := cl.GetClient().List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		inv.say().Engage(fakeMember(b, server.Addr(), server, "c", "token"))
		eventually(t, "replaced", func() bool { return f.status("x/c").UID == "uid-of-b" && ready() })
		inv.say().Disengage("c", backends.ReasonDeleted)
		eventually(t, "gone", func() bool { return len(f.Clusters()) == 0 })
	}
	for range 20 {
		cycle()
	}
	goroutines, heap := settled()
	for range cycles {
		cycle()
	}
	eventually(t, "the goroutines are back to where they were", func() bool {
		now, _ := settled()
		return now <= goroutines+5
	})
	if _, now := settled(); now > heap+heap/2+4<<20 {
		t.Errorf("heap after %d cycles: %d KiB, before %d KiB", cycles, now>>10, heap>>10)
	}
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
	server := newServer(t)
	extract := func(o client.Object) []string { return []string{o.GetName()} }
	silentServer := silent(t)
	f := newFleet(t, aggregate.Options{}, func(f *fleet) {
		for range 2 { // repeating one does nothing
			if err := f.mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "early", extract); err != nil {
				t.Fatal(err)
			}
		}
	})
	inv := started(t, f, "x")
	one, two := server.Cluster("one"), server.Cluster("two")
	inv.say().Engage(fakeMember(one, silentServer, server, "silent", "token"))
	inv.say().Engage(fakeMember(one, server.Addr(), server, "one", "token"))
	eventually(t, "engaged", func() bool { return f.is("x/one", backends.Engaged, backends.ReasonReady) })
	for range 2 {
		if err := f.mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "late", extract); err != nil {
			t.Fatal(err)
		}
		if err := f.mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, "late", extract); err != nil {
			t.Fatal(err)
		}
	}
	inv.say().Engage(fakeMember(two, server.Addr(), server, "two", "token"))
	eventually(t, "engaged", func() bool { return f.is("x/two", backends.Engaged, backends.ReasonReady) })
	for name, fake := range map[string]*fakeapi.Cluster{"one": one, "two": two} {
		key := put(t, fake, "indexed")
		eventually(t, "reconciled", func() bool { return f.saw("x/"+name, key) > 0 })
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
