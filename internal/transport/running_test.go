package transport

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

const objects = 1000

// running is a cluster.Cluster over a transport, and what its informers have seen.
type running struct {
	tr      *Transport
	count   faultproxy.Counter // of what goes out below the transport, whatever sends it
	cluster cluster.Cluster
	overlap bool // every other swap follows at once, so that two old generations drain together

	mu   sync.Mutex
	seen map[string]events // by kind and name
}

// events counts what an informer's handler was told of one object.
type events struct{ Adds, Updates, Deletes int }

// kinds are what the cluster has informers on, and what is written to it.
func kinds() map[string]client.Object {
	return map[string]client.Object{"configmap": &corev1.ConfigMap{}, "secret": &corev1.Secret{}, "serviceaccount": &corev1.ServiceAccount{}}
}

var fill sync.Once

func start(t *testing.T, plane *controlplane.ControlPlane, spec connection.Spec) *running {
	t.Helper()
	fill.Do(func() { createObjects(t, plane) })
	m := &running{seen: map[string]events{}}
	m.tr = New(m.generation(t, spec), Options{})
	var err error
	if m.cluster, err = cluster.New(m.tr.RESTConfig(member)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- m.cluster.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := m.tr.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for kind, obj := range kinds() {
		informer, err := m.cluster.GetCache().GetInformer(ctx, obj)
		if err != nil {
			t.Fatal(err)
		}
		handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { m.event(t, kind, obj, events{Adds: 1}) },
			UpdateFunc: func(_, obj any) { m.event(t, kind, obj, events{Updates: 1}) },
			DeleteFunc: func(obj any) { m.event(t, kind, obj, events{Deletes: 1}) },
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the initial events", handler.HasSynced)
	}
	m.mu.Lock()
	if len(m.seen) < objects {
		t.Fatalf("%d objects after the first sync", len(m.seen))
	}
	m.mu.Unlock()
	if m.count.Relists() == 0 {
		t.Fatal("the first sync was not counted")
	}
	m.count.Reset()
	return m
}

// generation returns a generation whose requests are counted as they are sent.
func (m *running) generation(t *testing.T, spec connection.Spec) *Generation {
	t.Helper()
	g := mustGeneration(t, spec, Options{})
	g.wire = newWire(g.endpoint, g.static, g.opts)
	g.wire.ordinary = m.count.RoundTripper(g.wire.ordinary)
	return g
}

func (m *running) event(t *testing.T, kind string, obj any, e events) {
	o, ok := obj.(client.Object)
	if !ok {
		t.Errorf("%s: a deletion was missed: %T", kind, obj)
		return
	}
	key := kind + "/" + o.GetName()
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.seen[key]
	m.seen[key] = events{was.Adds + e.Adds, was.Updates + e.Updates, was.Deletes + e.Deletes}
}

func createObjects(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	k := kubernetes.NewForConfigOrDie(plane.Config())
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := range objects / 10 {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d-%d", w, i)}}
				if _, err := k.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// rotate swaps n times to what next returns, while objects are written all the time, and checks every promise.
// check is told who the API server says that new requests come from.
func (m *running) rotate(t *testing.T, n int, next func(i int) connection.Spec, check func(i int, who authenticationv1.UserInfo), after func(i int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := make(chan []string, 1)
	go func() { written <- m.write(ctx, t) }()

	var latest time.Duration
	var olds []*Generation
	for i := range n {
		g := m.generation(t, next(i))
		mustGet(t, g, "/readyz") // proved
		old := m.tr.Current()
		w := old.wire
		m.tr.Swap(g)
		latest = max(latest, lastEnd(old, w))
		who := &authenticationv1.SelfSubjectReview{}
		if err := m.cluster.GetClient().Create(ctx, who); err != nil {
			t.Fatalf("rotation %d: %v", i, err)
		}
		check(i, who.Status.UserInfo)
		after(i)
		if olds = append(olds, old); m.overlap && i%2 == 0 && i < n-1 {
			continue
		}
		for _, old := range olds {
			old.wg.Wait() // until the last watch has moved and the last connection is closed
		}
		olds = nil
		eventually(t, "the watches to be open again", func() bool { return openWatches(g) == len(kinds()) })
	}
	cancel()
	names := <-written
	for r, n := range m.count.Requests() { // first, since events that a relist skips never come
		if r.Verb == faultproxy.List || r.Verb == faultproxy.WatchList { // whatever the answer
			t.Errorf("%d relists after the first sync: %+v", n, r)
		}
	}
	if len(names) == 0 {
		t.Error("nothing was written")
	}
	want := events{Adds: 1, Updates: 1, Deletes: 1}
	eventually(t, "the last events", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !slices.ContainsFunc(names, func(name string) bool {
			e := m.seen[name]
			return e.Adds < want.Adds || e.Updates < want.Updates || e.Deletes < want.Deletes
		})
	})
	m.mu.Lock()
	for _, name := range names {
		if got := m.seen[name]; got != want {
			t.Errorf("of %s was seen %+v", name, got)
		}
	}
	m.mu.Unlock()
	if n := m.count.Relists(); n != 0 {
		t.Errorf("%d relists in the end", n)
	}
	if limit := max(m.tr.opts.Stagger, minWatchListAge); latest > limit {
		t.Errorf("a watch was to move %v after the flip, want %v at most", latest, limit)
	}
	t.Logf("%d rotations: %d objects created, updated, deleted and seen so, %d watches opened, 0 relists; the last watch was to move %v after its flip",
		n, len(names), m.count.Count(faultproxy.WithVerb(faultproxy.Watch)), latest.Round(time.Millisecond))
}

// lastEnd returns how long from now the last watch of a retired wire is to end: a busy machine ends it later.
func lastEnd(g *Generation, w *wire) (last time.Duration) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for x := range w.live {
		if x.kind == kindWatch {
			last = max(last, x.due.Sub(now))
		}
	}
	return last
}

// openWatches counts the watches that are open over a generation.
func openWatches(g *Generation) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wire == nil {
		return 0
	}
	for x := range g.wire.live {
		if x.kind == kindWatch && x.open {
			n++
		}
	}
	return n
}

// write creates, updates and deletes objects through the cluster until ctx ends, and returns those with which it got to the end. None may
// fail.
func (m *running) write(ctx context.Context, t *testing.T) (names []string) {
	c, prefix := m.cluster.GetClient(), unique(strings.ToLower(t.Name()))
	for i := 0; ctx.Err() == nil; i++ {
		for kind, obj := range kinds() {
			obj.SetNamespace("default")
			obj.SetName(fmt.Sprintf("%s-%d", prefix, i))
			err := c.Create(ctx, obj)
			if err == nil {
				obj.SetLabels(map[string]string{"updated": "true"})
				err = c.Update(ctx, obj)
			}
			if err == nil {
				err = c.Delete(ctx, obj)
			}
			switch {
			case err == nil:
				names = append(names, kind+"/"+obj.GetName())
			case ctx.Err() == nil:
				t.Errorf("a write failed: %v", err)
				return names
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return names
}
