package restmapper

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// A controller-runtime cluster works with a shared mapper: an unknown kind fails at once, even if discovery hangs, and is
// there after its installation and a refresh.
func TestControllerRuntimeCluster(t *testing.T) {
	server := fakeapi.NewServer()
	defer server.Close()
	member := server.Cluster("member")
	member.SetKinds(200)
	httpClient, err := rest.HTTPClientFor(member.Config(""))
	if err != nil {
		t.Fatal(err)
	}
	defer httpClient.CloseIdleConnections()

	pool := NewPool()
	surface, err := pool.Discover(t.Context(), httpClient, member.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	mapper := pool.NewMapper(surface, func(ctx context.Context, previous *Surface) (*Surface, error) {
		return pool.Discover(ctx, httpClient, member.URL(), previous)
	}, MapperOptions{MissInterval: time.Millisecond, Timeout: time.Second})
	defer mapper.Close()
	cl, err := cluster.New(member.Config(""), func(o *cluster.Options) {
		o.HTTPClient = httpClient
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		if err := cl.Start(ctx); err != nil {
			t.Errorf("cluster: %v", err)
		}
	})

	gadget := fakeapi.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, Resource: "gadgets",
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gadget.GroupVersionKind)
	object.SetNamespace("default")
	object.SetName("g")
	get := func() error { return cl.GetClient().Get(ctx, client.ObjectKeyFromObject(object), object) }

	member.SetFault("/apis", fakeapi.Fault{Hang: true, Times: 1})
	if err := get(); !meta.IsNoMatchError(err) {
		t.Errorf("get of an unknown kind: %v, want no match", err)
	}
	changed := mapper.Changed() // before anything that a refresh under way could see
	member.InstallKind(gadget)
	if err := member.Put(object); err != nil {
		t.Fatal(err)
	}
	await(t, mapper, changed)
	if err := get(); err != nil {
		t.Errorf("get after the installation: %v", err)
	}
	changed = mapper.Changed()
	member.RemoveKind(gadget)
	await(t, mapper, changed)
	if mapper.Surface().shared != surface.shared {
		t.Error("installing and removing a kind did not lead back to the shared surface")
	}
}

// await refreshes until the surface changes, as whoever waits for a kind does: a single refresh may be the one that hangs.
func await(t *testing.T, mapper *Mapper, changed <-chan struct{}) {
	t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	giveUp := time.After(time.Minute)
	for {
		mapper.Refresh()
		select {
		case <-changed:
			return
		case <-again.C:
		case <-giveUp:
			t.Fatalf("the surface did not change: %v", mapper.Err())
		}
	}
}
