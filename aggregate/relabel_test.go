package aggregate_test

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/internal/endtoend"
)

// A controller that selects clusters by their labels gets one when its labels come to match, with the objects that are there, and
// loses it when they no longer do. The cluster's caches stay: nothing is listed.
func TestLabelsChange(t *testing.T) {
	server := endtoend.Fakes(t)
	c := server.Cluster("c")
	c.AllowToken("token", "user")
	var mu sync.Mutex
	calls := map[string]int{}
	called := func(key string) int {
		mu.Lock()
		defer mu.Unlock()
		return calls[key]
	}
	f := endtoend.Start(t, aggregate.Options{}, endtoend.Before(func(f *endtoend.Fleet) {
		prod := f.WithLabels(labels.SelectorFromSet(labels.Set{"env": "prod"}))
		err := mcbuilder.ControllerManagedBy(f.Manager).Named("prod-only").
			For(&corev1.ConfigMap{}, mcbuilder.WithClusterFilter(prod)).
			WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: new(true)}).
			Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (ctrl.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				calls[req.NamespacedName.String()]++
				return ctrl.Result{}, nil
			}))
		if err != nil {
			t.Fatal(err)
		}
	}))
	inv := f.Declare(t, "x")
	label := func(env string) {
		member := endtoend.FakeMember(c, server.Addr(), server, "c", "token")
		member.Info.Labels = map[string]string{"env": env}
		inv.Say().Engage(member)
	}
	label("dev")
	first := endtoend.PutConfigMap(t, c, "first")
	endtoend.Eventually(t, "the other controller has the cluster", func() bool { return f.Saw("x/c", first) > 0 && f.Engaged("x/c") })
	if called(first) > 0 {
		t.Error("called for a cluster whose labels do not match")
	}
	before, err := f.Get(t.Context(), "x/c")
	if err != nil {
		t.Fatal(err)
	}
	c.Counter.Reset()
	for range 5 {
		label("prod")
		latest := endtoend.PutConfigMap(t, c, "prod")
		endtoend.Eventually(t, "it has the cluster, and what was there", func() bool { return called(first) > 0 && called(latest) > 0 })

		label("dev")
		// What comes after the controllers have been engaged anew is no longer for this one. That they have, the other one
		// shows: it is called for all objects again.
		n := f.Saw("x/c", first)
		endtoend.Eventually(t, "taken back, and handed over anew", func() bool { return f.Saw("x/c", first) > n || f.Saw("x/c", latest) > 1 })
		unseen := endtoend.PutConfigMap(t, c, "dev")
		endtoend.Eventually(t, "the other controller goes on", func() bool { return f.Saw("x/c", unseen) > 0 })
		if called(unseen) > 0 {
			t.Error("called for a cluster whose labels no longer match")
		}
		mu.Lock()
		clear(calls)
		mu.Unlock()
	}
	if now, err := f.Get(t.Context(), "x/c"); err != nil || now != before {
		t.Errorf("the cluster was built anew (%v)", err)
	}
	if n := c.Counter.Relists(); n > 0 {
		t.Errorf("%d lists", n)
	}
}
