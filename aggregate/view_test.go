package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
)

// A view has the provider's own clusters and errors, and knows nothing of the rest of the fleet.
func TestView(t *testing.T) {
	server := endtoend.Fakes(t)
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithoutController())
	inside, outside := f.DeclareUnder(t, "b", aggregate.BackendOptions{Prefix: "shared"}), f.DeclareUnder(t, "a", aggregate.BackendOptions{Prefix: "a"})
	for name, inv := range map[string]*endtoend.Inventory{"in": inside, "out": outside} {
		inv.Say().Engage(endtoend.FakeMember(server.Cluster(name), server.Addr(), server, name, "token"))
		inv.Say().Hold("held", backends.Hold{Reason: backends.ReasonPaused})
	}
	view := f.View("shared")
	// An index for all, by way of a view.
	byFirst := func(o client.Object) []string { return []string{o.GetName()[:1]} }
	for range 2 {
		if err := view.IndexField(t.Context(), &corev1.ConfigMap{}, "first", byFirst); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"shared/in", "a/out"} {
		endtoend.Eventually(t, name+" engaged", func() bool { return f.Engaged(name) })
	}
	cl, err := f.Get(t.Context(), "shared/in")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []multicluster.Provider{view, f.View("b")} {
		if got, err := v.Get(t.Context(), "shared/in"); err != nil || got != cl {
			t.Errorf("Get of its own cluster: %v, %v", got, err)
		}
		if _, err := v.Get(t.Context(), "shared/held"); !errors.Is(err, backends.ErrNotEngaged) {
			t.Errorf("Get of its own cluster that is held: %v, want ErrNotEngaged", err)
		}
		for _, name := range []multicluster.ClusterName{"a/out", "a/held", "shared/unknown", "shared", ""} {
			if _, err := v.Get(t.Context(), name); !errors.Is(err, multicluster.ErrClusterNotFound) {
				t.Errorf("Get of %q: %v, want ErrClusterNotFound", name, err)
			}
		}
	}
	if _, err := f.View("").Get(t.Context(), "shared/in"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("a view without a name has a cluster: %v", err)
	}
	if f.View("b") != f.View("b") || f.View("b") == view {
		t.Error("views are not equal by what they show")
	}
	if _, runs := view.(multicluster.ProviderRunnable); runs {
		t.Error("a view can be run")
	}
	key := endtoend.PutConfigMap(t, server.Cluster("in"), "indexed")
	var list corev1.ConfigMapList
	endtoend.Eventually(t, "the index is there", func() bool {
		return cl.GetClient().List(t.Context(), &list, client.MatchingFields{"first": "i"}) == nil && len(list.Items) == 1
	})
	if got := client.ObjectKeyFromObject(&list.Items[0]).String(); got != key {
		t.Errorf("found %s by index, want %s", got, key)
	}
}

// A view has a cluster by the time that controllers are engaged with it, and when it replaces another one too. mcr's
// WithClustersFromProvider asks then, once, whether both are the same.
func TestViewHasWhatIsBeingEngaged(t *testing.T) {
	const members, rounds = 25, 8
	p, err := aggregate.New(aggregate.Options{Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	inv := endtoend.NewInventory()
	if err := p.Add("x", inv, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	server, view := endtoend.Fakes(t), p.View("x")
	var engaged atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- p.Start(ctx, awareFunc(func(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
			if got, err := view.Get(ctx, name); got != cl && ctx.Err() == nil {
				t.Errorf("%s: the view has another cluster than the one that is being engaged (%v)", name, err)
			}
			engaged.Add(1)
			return nil
		}))
	}()
	<-inv.Running
	for round := range rounds {
		for i := range members {
			name := fmt.Sprint("c", i)
			fake := server.Cluster(fmt.Sprint(name, "-", round%2)) // another cluster than in the round before
			inv.Say().Engage(endtoend.FakeMember(fake, server.Addr(), server, name, "token"))
		}
		endtoend.Eventually(t, "all engaged", func() bool { return engaged.Load() == int64((round+1)*members) })
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A cluster that moves between backends under one prefix is handed over anew if there are views of the backends, which show it
// in their turn, and is left alone if there is only one of the prefix.
func TestViewsFollowMoves(t *testing.T) {
	for name, c := range map[string]struct {
		views []string
		want  []string // for each hand-over, the views that have the cluster
	}{
		"views of backends": {[]string{"a", "b", "p"}, []string{"a p", "b p", "a p"}},
		"view of a prefix":  {[]string{"p"}, []string{"p"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := endtoend.Fakes(t)
			p, err := aggregate.New(aggregate.Options{Metrics: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			views := map[string]multicluster.Provider{}
			for _, v := range c.views {
				views[v] = p.View(v)
			}
			inventories := map[string]*endtoend.Inventory{"a": endtoend.NewInventory(), "b": endtoend.NewInventory()}
			for _, backend := range []string{"a", "b"} {
				if err := p.Add(backend, inventories[backend], aggregate.BackendOptions{Prefix: "p"}); err != nil {
					t.Fatal(err)
				}
			}
			var mu sync.Mutex
			var handed []string
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- p.Start(ctx, awareFunc(func(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
					var have []string
					for _, v := range c.views {
						if got, err := views[v].Get(ctx, name); err == nil && got == cl {
							have = append(have, v)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					handed = append(handed, strings.Join(have, " "))
					return nil
				}))
			}()
			for _, backend := range []string{"a", "b"} {
				<-inventories[backend].Running
				inventories[backend].Say().Engage(endtoend.FakeMember(server.Cluster("c"), server.Addr(), server, "c", "token-of-"+backend))
				inventories[backend].Say().Synced()
			}
			got := func() []string {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(handed)
			}
			for i, order := range [][]string{{"a", "b"}, {"b", "a"}, {"a", "b"}} {
				if err := p.Arrange("p", order...); err != nil {
					t.Fatal(err)
				}
				endtoend.Eventually(t, "served by "+order[0], func() bool {
					all := p.Clusters()
					return len(all) == 1 && all[0].Backend == order[0] && all[0].State == backends.Engaged
				})
				endtoend.Eventually(t, "handed over", func() bool { return len(got()) >= min(i+1, len(c.want)) })
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(c.want, got()); diff != "" {
				t.Errorf("hand-overs (-want +got):\n%s", diff)
			}
		})
	}
}

// Filters go by what is known now, and say no to what is not known at all.
func TestFiltersFollowTheInventory(t *testing.T) {
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithoutController())
	prod := f.WithLabels(labels.SelectorFromSet(labels.Set{"env": "prod"}))
	fromA, everything := f.FromBackend("a"), f.WithLabels(labels.Everything())
	answers := func() [3]bool { return [3]bool{prod("p/c", nil), fromA("p/c", nil), everything("p/c", nil)} }
	if got := answers(); got != [3]bool{} {
		t.Errorf("an unknown name is selected: %v", got)
	}
	a := f.DeclareUnder(t, "a", aggregate.BackendOptions{Prefix: "p"})
	hold := backends.Hold{Reason: backends.ReasonPaused, Info: backends.Info{Labels: map[string]string{"env": "prod"}}}
	a.Say().Hold("c", hold)
	if got := answers(); got != [3]bool{true, true, true} {
		t.Errorf("with labels, from its backend: %v", got)
	}
	hold.Info.Labels = nil
	a.Say().Hold("c", hold)
	if got := answers(); got != [3]bool{false, true, true} {
		t.Errorf("without labels: %v", got)
	}
	a.Say().Synced()
	b := f.DeclareUnder(t, "b", aggregate.BackendOptions{Prefix: "p"})
	b.Say().Hold("c", hold)
	a.Say().Disengage("c", backends.ReasonDeleted)
	endtoend.Eventually(t, "the other backend has it", func() bool { return f.Status("p/c").Backend == "b" })
	if got := answers(); got != [3]bool{false, false, true} {
		t.Errorf("from another backend: %v", got)
	}
}
