package aggregate_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

var planes controlplane.Pool

func TestMain(m *testing.M) {
	serveFakesIfAsked()
	ctrl.SetLogger(logr.Discard())
	controlplane.Main(m, &planes)
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// eventually waits until the condition holds, and fails the test if it does not.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("never came: %s", what)
	}
}

// inventory is a backend that says what a test tells it to.
type inventory struct {
	mu      sync.Mutex
	engager backends.Engager
	running chan struct{}
	fail    chan error
}

func newInventory() *inventory {
	return &inventory{running: make(chan struct{}, 16), fail: make(chan error)}
}

func (i *inventory) Run(ctx context.Context, e backends.Engager) error {
	i.mu.Lock()
	i.engager = e
	i.mu.Unlock()
	i.running <- struct{}{}
	select {
	case err := <-i.fail:
		return err
	case <-ctx.Done():
		return nil
	}
}

// say returns the engager of the present run.
func (i *inventory) say() backends.Engager {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.engager
}

// specOf parses a kubeconfig.
func specOf(t *testing.T, kubeconfig []byte) connection.Spec {
	t.Helper()
	result, err := connection.ParseKubeconfig(t.Context(), kubeconfig, connection.KubeconfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return result.Spec
}

func member(t *testing.T, name string, kubeconfig []byte) backends.Cluster {
	t.Helper()
	return backends.Cluster{Name: name, Connection: specOf(t, kubeconfig), Info: backends.Info{DisplayName: name}}
}

// fleet is a provider under a manager, with one controller that remembers which ConfigMaps it was called for.
type fleet struct {
	*aggregate.Provider
	mgr mcmanager.Manager

	// What the manager is made with; an option of newFleet may change it.
	hub     *rest.Config
	options mcmanager.Options
	bare    bool // without a controller

	mu         sync.Mutex
	reconciled map[string]int // "cluster namespace/name" → how often
}

// hubless is the configuration of a manager that has no hub: nothing is ever asked of it.
var hubless = &rest.Config{Host: "https://hub.invalid"}

// option changes what a fleet is made with, before its manager is made.
type option func(*fleet)

// withManager has the fleet's manager made with a hub and other options.
func withManager(hub *controlplane.ControlPlane, change func(*mcmanager.Options)) option {
	return func(f *fleet) {
		f.hub = hub.Config()
		change(&f.options)
	}
}

// withoutControllers has the fleet run without a controller.
func withoutControllers(f *fleet) { f.bare = true }

// newFleet makes a fleet and starts it; its end is waited for when the test ends. setup are options, and functions
// that are called with the fleet before it starts.
func newFleet(t *testing.T, opts aggregate.Options, setup ...any) *fleet {
	t.Helper()
	p, err := aggregate.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{Provider: p, reconciled: map[string]int{}, hub: hubless, options: mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Logger:  logr.Discard(),
	}}
	for _, s := range setup {
		if change, ok := s.(option); ok {
			change(f)
		}
	}
	if f.mgr, err = mcmanager.New(f.hub, p, f.options); err != nil {
		t.Fatal(err)
	}
	if !f.bare {
		err = mcbuilder.ControllerManagedBy(f.mgr).Named("configmaps").For(&corev1.ConfigMap{}).
			WithOptions(controller.TypedOptions[mcreconcile.Request]{MaxConcurrentReconciles: 4, SkipNameValidation: new(true)}).
			Complete(mcreconcile.Func(f.reconcile))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range setup {
		if prepare, ok := s.(func(*fleet)); ok {
			prepare(f)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	return f
}

func (f *fleet) reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	cl, err := f.mgr.GetCluster(ctx, req.ClusterName)
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

// saw reports how often the controller was called for an existing ConfigMap.
func (f *fleet) saw(cluster, configMap string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reconciled[cluster+" "+configMap]
}

// status returns a cluster's status, or the zero one.
func (f *fleet) status(name string) aggregate.ClusterStatus {
	for _, c := range f.Clusters() {
		if c.Name.String() == name {
			return c
		}
	}
	return aggregate.ClusterStatus{}
}

// is reports whether a cluster is in a state for a reason.
func (f *fleet) is(name string, state backends.State, reason backends.Reason) bool {
	s := f.status(name)
	return s.State == state && s.Reason == reason
}

var configMaps atomic.Int64 // how many configMap has made

// configMap creates a ConfigMap in the default namespace, under a name that is new, and returns namespace/name.
func configMap(t *testing.T, plane *controlplane.ControlPlane, name string) string {
	t.Helper()
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprint(name, "-", configMaps.Add(1))
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	return "default/" + name
}

// silent returns the address of something that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	p, err := faultproxy.Start("127.0.0.1:1", faultproxy.Options{Mode: faultproxy.Blackhole}) // it leads nowhere
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Addr()
}

var users atomic.Int64 // how many newUser has made: a control plane knows each name once, however often a test runs

// newUser makes a user with the given rights.
func newUser(t *testing.T, plane *controlplane.ControlPlane, rules ...rbacv1.PolicyRule) *controlplane.User {
	t.Helper()
	user, err := plane.NewUser(t.Context(), fmt.Sprint("user-", users.Add(1)), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func issue(t *testing.T, user *controlplane.User) *controlplane.Token {
	t.Helper()
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func name(s string) multicluster.ClusterName { return multicluster.ClusterName(s) }
