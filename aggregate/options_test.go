package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// Client options that clusters share do not make them share a cache.
func TestSharedClientOptions(t *testing.T) {
	server := endtoend.Fakes(t)
	shared := &client.CacheOptions{}
	f := endtoend.Start(t, aggregate.Options{ClusterOptions: []cluster.Option{func(o *cluster.Options) { o.Client.Cache = shared }}})
	inv := f.Declare(t, "x")
	for _, name := range []string{"a", "b"} {
		endtoend.PutConfigMap(t, server.Cluster(name), name)
		inv.Say().Engage(endtoend.FakeMember(server.Cluster(name), server.Addr(), server, name, "token"))
	}
	for _, name := range []string{"a", "b"} {
		endtoend.Eventually(t, "engaged", func() bool { return f.Is("x/"+name, backends.Engaged, backends.ReasonReady) })
		cl, err := f.Get(t.Context(), multicluster.ClusterName("x/"+name))
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.ConfigMapList
		if err := cl.GetClient().List(t.Context(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name[:1] != name {
			t.Errorf("%s reads %d objects of another cluster (%v): %v", name, len(list.Items), err, list.Items)
		}
	}
}

// A cache of some namespaces delivers each event once to each handler, however many ask for its informer, and a read in a
// namespace that does not sync waits no longer than its bound, whatever has synced beside it.
func TestNamespacedCaches(t *testing.T) {
	server := endtoend.Fakes(t)
	fake := server.Cluster("c")
	f := endtoend.Start(t, aggregate.Options{
		ReadTimeout: 200 * time.Millisecond,
		ClusterOptions: []cluster.Option{func(o *cluster.Options) {
			o.Cache.DefaultNamespaces = map[string]cache.Config{"default": {}, "other": {}}
			o.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.Event{}: {}} // a kind that the member does not serve
		}},
	}, endtoend.WithoutController())
	inv := f.Declare(t, "x")
	fake.SetFault("/api/v1/namespaces/other/configmaps", fakeapi.Fault{Status: 500})
	inv.Say().Engage(endtoend.FakeMember(fake, server.Addr(), server, "c", "token"))
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("x/c", backends.Engaged, backends.ReasonReady) })
	cl, err := f.Get(t.Context(), "x/c")
	if err != nil {
		t.Fatal(err)
	}
	// One namespace answers, the other does not.
	for range 2 {
		err := cl.GetClient().List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("other"))
		if err == nil || errors.Is(err, context.DeadlineExceeded) && t.Context().Err() != nil {
			t.Errorf("read of a namespace that does not sync: %v", err)
		}
	}
	fake.ClearFaults()
	var list corev1.ConfigMapList
	key := endtoend.PutConfigMap(t, fake, "once")
	endtoend.Eventually(t, "the read succeeds when the namespace answers", func() bool {
		return cl.GetClient().List(t.Context(), &list, client.InNamespace("default")) == nil && len(list.Items) == 1
	})

	var mu sync.Mutex
	heard := map[int]int{}
	for i := range 3 {
		informer, err := cl.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		if err != nil {
			t.Fatal(err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			if o.(metav1.Object).GetNamespace()+"/"+o.(metav1.Object).GetName() == key {
				mu.Lock()
				defer mu.Unlock()
				heard[i]++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		endtoend.Eventually(t, "handler synced", registration.HasSynced)
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(heard) != "map[0:1 1:1 2:1]" {
		t.Errorf("how often each handler heard of one object: %v", heard)
	}
}

// A backend that does not stop in time, and clusters that drain longer than the provider may take to stop, spoil
// nothing: not the stop of the others, and not the next start.
func TestStubbornBackend(t *testing.T) {
	server := endtoend.Fakes(t)
	p, err := aggregate.New(aggregate.Options{StopTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	stubborn := &stubbornInventory{Inventory: endtoend.NewInventory(), release: make(chan struct{})}
	if err := p.Add("x", stubborn, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	aware := awareFunc(func(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
		if name == "x/slow" {
			<-stubborn.release // a controller that does not return
		}
		return nil
	})
	start := func() (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Start(ctx, aware) }()
		return func() error {
			cancel()
			return <-ended
		}
	}
	stop := start()
	<-stubborn.Running
	old := stubborn.Say()
	old.Engage(endtoend.FakeMember(server.Cluster("slow"), server.Addr(), server, "slow", "token"))
	endtoend.Eventually(t, "engaged", func() bool { return len(p.Clusters()) == 1 && p.Clusters()[0].State == backends.Engaged })
	if err := stop(); err == nil {
		t.Error("a stop that left things behind says nothing")
	}
	if left := p.Clusters(); len(left) != 0 {
		t.Errorf("left after the stop: %+v", left)
	}
	if _, err := p.Get(t.Context(), "x/slow"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("Get after the stop: %v", err)
	}

	stop = start()
	close(stubborn.release) // only now the first run ends, and what it engaged
	<-stubborn.Running
	stubborn.Say().Engage(endtoend.FakeMember(server.Cluster("c"), server.Addr(), server, "c", "token"))
	old.Disengage("c", backends.ReasonDeleted)
	endtoend.Eventually(t, "the second run counts", func() bool {
		c := p.Clusters()
		return len(c) == 1 && c[0].Member == "c" && c[0].State == backends.Engaged && c[0].Reason == backends.ReasonReady
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// stubbornInventory does not return before it is released.
type stubbornInventory struct {
	*endtoend.Inventory
	release chan struct{}
}

func (s *stubbornInventory) Run(ctx context.Context, e backends.Engager) error {
	err := s.Inventory.Run(ctx, e)
	<-s.release
	return err
}

type awareFunc func(context.Context, multicluster.ClusterName, cluster.Cluster) error

func (f awareFunc) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	return f(ctx, name, cl)
}

// A removal that outlasts its context goes on by itself, and the name is free when it is done.
func TestRemovalGoesOn(t *testing.T) {
	f := endtoend.Start(t, aggregate.Options{})
	stubborn := &stubbornInventory{Inventory: endtoend.NewInventory(), release: make(chan struct{})}
	if err := f.Add("x", stubborn, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	<-stubborn.Running
	stubborn.Say().Hold("a", backends.Hold{Reason: backends.ReasonPaused})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Remove(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Remove with a context that has ended: %v", err)
	}
	endtoend.Eventually(t, "its clusters are gone at once", func() bool { return len(f.Clusters()) == 0 })
	if err := f.Add("x", endtoend.NewInventory(), aggregate.BackendOptions{}); !errors.Is(err, aggregate.ErrBackendExists) {
		t.Errorf("Add during the removal: %v, want ErrBackendExists", err)
	}
	close(stubborn.release)
	endtoend.Eventually(t, "the name is free", func() bool {
		return f.Add("x", endtoend.NewInventory(), aggregate.BackendOptions{}) == nil
	})
}
