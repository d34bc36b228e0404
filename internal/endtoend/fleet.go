package endtoend

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// Patience is how long a test waits for what must come.
const Patience = 60 * time.Second

// Hubless is the configuration of a manager that has no hub: nothing is ever asked of it.
var Hubless = &rest.Config{Host: "https://hub.invalid"}

// Eventually waits until the condition holds, and fails the test if it does not.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("never came: %s", what)
	}
}

// Fleet is a provider under a manager, with one controller that remembers which ConfigMaps it was called for.
type Fleet struct {
	*aggregate.Provider
	Manager mcmanager.Manager

	mu         sync.Mutex
	reconciled map[string]int // "cluster namespace/name" → how often
}

// Option is one thing about a fleet that is not as usual.
type Option func(*settings)

type settings struct {
	hub     *rest.Config
	options mcmanager.Options
	more    []mcmanager.Option
	bare    bool
	before  []func(*Fleet)
}

// WithHub gives the manager a hub; without one it has none that could be asked anything.
func WithHub(hub *controlplane.ControlPlane) Option {
	return func(s *settings) { s.hub = hub.Config() }
}

// WithManager changes the options of the manager.
func WithManager(change func(*mcmanager.Options)) Option {
	return func(s *settings) { change(&s.options) }
}

// WithCoordinator gives the manager a coordinator.
func WithCoordinator(c mcmanager.Coordinator) Option {
	return func(s *settings) { s.more = append(s.more, mcmanager.WithCoordinator(c)) }
}

// WithoutController leaves the controller of ConfigMaps out.
func WithoutController() Option {
	return func(s *settings) { s.bare = true }
}

// Before calls a function after the manager was made and before it is started.
func Before(prepare func(*Fleet)) Option {
	return func(s *settings) { s.before = append(s.before, prepare) }
}

// Start makes a fleet and starts it; its end is waited for when the test ends.
func Start(t testing.TB, opts aggregate.Options, options ...Option) *Fleet {
	t.Helper()
	p, err := aggregate.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := settings{hub: Hubless, options: mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Logger:  logr.Discard(),
	}}
	// As of v0.24.1, controller-runtime's priority queue may stop for ever when it is shut down with something in it: it sends to a worker
	// that has just left, under the lock that the other workers need in order to leave.
	s.options.Controller.UsePriorityQueue = new(false)
	for _, o := range options {
		o(&s)
	}
	f := &Fleet{Provider: p, reconciled: map[string]int{}}
	if f.Manager, err = mcmanager.New(s.hub, p, s.options, s.more...); err != nil {
		t.Fatal(err)
	}
	if !s.bare {
		err = mcbuilder.ControllerManagedBy(f.Manager).Named("configmaps").For(&corev1.ConfigMap{}).
			WithOptions(controller.TypedOptions[mcreconcile.Request]{MaxConcurrentReconciles: 4, SkipNameValidation: new(true)}).
			Complete(mcreconcile.Func(f.reconcile))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, prepare := range s.before {
		prepare(f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	return f
}

func (f *Fleet) reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	cl, err := f.Manager.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var cm corev1.ConfigMap
	if err := cl.GetClient().Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reconciled[req.ClusterName.String()+" "+req.NamespacedName.String()]++
	return ctrl.Result{}, nil
}

// Saw reports how often the controller was called for an existing ConfigMap, given as namespace/name.
func (f *Fleet) Saw(cluster, configMap string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reconciled[cluster+" "+configMap]
}

// Status returns a cluster's status, or the zero one.
func (f *Fleet) Status(name string) aggregate.ClusterStatus {
	for _, c := range f.Clusters() {
		if c.Name.String() == name {
			return c
		}
	}
	return aggregate.ClusterStatus{}
}

// Is reports whether a cluster is in a state for a reason.
func (f *Fleet) Is(name string, state backends.State, reason backends.Reason) bool {
	s := f.Status(name)
	return s.State == state && s.Reason == reason
}

// Engaged reports whether a cluster is engaged and well.
func (f *Fleet) Engaged(name string) bool { return f.Is(name, backends.Engaged, backends.ReasonReady) }

// Name is a cluster's name in the type that providers take.
func Name(s string) multicluster.ClusterName { return multicluster.ClusterName(s) }
