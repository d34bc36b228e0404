package fleet_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// unfriendly is a selector that panics.
type unfriendly struct{ labels.Selector }

func (unfriendly) Matches(labels.Labels) bool { panic("no labels, please") }
func (unfriendly) String() string             { panic("no words, please") }

// Controllers that select clusters see those, and no other: real clusters, and a controller for each way to select. What
// they select by is made before the backends are added.
func TestSelectedControllers(t *testing.T) {
	type filterFunc = mcbuilder.ClusterFilterFunc
	ways := map[string]func(*endtoend.Fleet) mcbuilder.EngageOptions{}
	view := func(name string) func(f *endtoend.Fleet) mcbuilder.EngageOptions {
		return func(f *endtoend.Fleet) mcbuilder.EngageOptions {
			return mcbuilder.WithClustersFromProvider(t.Context(), f.View(name))
		}
	}
	filter := func(make func(*endtoend.Fleet) filterFunc) func(f *endtoend.Fleet) mcbuilder.EngageOptions {
		return func(f *endtoend.Fleet) mcbuilder.EngageOptions { return mcbuilder.WithClusterFilter(make(f)) }
	}
	ways["view of a prefix"], ways["view of a backend"] = view("shared"), view("b")
	ways["backends"] = filter(func(f *endtoend.Fleet) filterFunc { return f.FromBackend("c", "a", "unknown") })
	for name, selector := range map[string]labels.Selector{
		"labels":       labels.SelectorFromSet(labels.Set{"env": "prod"}),
		"other labels": labels.SelectorFromSet(labels.Set{"env": "dev"}),
		"panic":        unfriendly{},
		"nil":          nil,
	} {
		ways[name] = filter(func(f *endtoend.Fleet) filterFunc { return f.WithLabels(selector) })
	}
	want := map[string][]string{
		"view of a prefix":  {"shared/three", "shared/two"},
		"view of a backend": {"shared/two"},
		"backends":          {"a/one", "shared/three"},
		"labels":            {"a/one", "shared/three"},
		"other labels":      {"shared/two"},
	}

	var mu sync.Mutex
	saw := map[string]map[string]bool{} // by controller: the clusters that it was called for
	f := endtoend.Start(t, aggregate.Options{}, endtoend.Before(func(f *endtoend.Fleet) {
		for way, option := range ways {
			err := mcbuilder.ControllerManagedBy(f.Manager).Named(way).For(&corev1.ConfigMap{}, option(f)).
				WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: new(true)}).
				Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (ctrl.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					if saw[way] == nil {
						saw[way] = map[string]bool{}
					}
					saw[way][req.ClusterName.String()] = true
					return ctrl.Result{}, nil
				}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}))
	for _, c := range []struct{ backend, prefix, member, env, plane string }{
		{"a", "a", "one", "prod", "one"},
		{"b", "shared", "two", "dev", "good-0"},
		{"c", "shared", "three", "prod", "good-1"},
	} {
		inv := f.DeclareUnder(t, c.backend, aggregate.BackendOptions{Prefix: c.prefix})
		plane := planes.Get(t, controlplane.Options{Name: c.plane})
		member := endtoend.Member(t, c.member, plane.Kubeconfig())
		member.Info.Labels = map[string]string{"env": c.env}
		inv.Say().Engage(member)
		inv.Say().Synced()
		name := c.prefix + "/" + c.member
		cm := endtoend.ConfigMap(t, plane, "selected")
		endtoend.Eventually(t, "the controller of all clusters is called", func() bool { return f.Saw(name, cm) > 0 })
		endtoend.Eventually(t, name+" engaged with every controller", func() bool { return f.Engaged(name) })
	}
	seen := func() map[string][]string {
		mu.Lock()
		defer mu.Unlock()
		all := map[string][]string{}
		for way, clusters := range saw {
			all[way] = slices.Sorted(maps.Keys(clusters))
		}
		return all
	}
	endtoend.Eventually(t, "every controller is called for what it selects", func() bool {
		got := seen()
		for way, clusters := range want {
			for _, name := range clusters {
				if !slices.Contains(got[way], name) {
					return false
				}
			}
		}
		return true
	})
	if diff := cmp.Diff(want, seen()); diff != "" {
		t.Errorf("controllers see other clusters than they select (-want +got):\n%s", diff)
	}
}
