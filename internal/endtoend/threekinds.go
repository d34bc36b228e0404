package endtoend

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// ThreeKinds remembers what a controller with three watches is called for: ConfigMaps, ServiceAccounts and Services
// of equal names.
type ThreeKinds struct {
	mu     sync.Mutex
	called map[string]map[string]int // by the object's "namespace/name", then by kind
	errs   []error
}

// Watch adds the controller to a fleet; it is an argument of Before.
func (k *ThreeKinds) Watch(t testing.TB) func(*Fleet) {
	return func(f *Fleet) {
		t.Helper()
		err := mcbuilder.ControllerManagedBy(f.Manager).Named("three-kinds").For(&corev1.ConfigMap{}).
			Watches(&corev1.ServiceAccount{}, mchandler.EnqueueRequestForObject).
			Watches(&corev1.Service{}, mchandler.EnqueueRequestForObject).
			WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: new(true)}).
			Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
				err := k.look(ctx, f, req)
				if err != nil {
					k.mu.Lock()
					k.errs = append(k.errs, err)
					k.mu.Unlock()
				}
				return ctrl.Result{}, err
			}))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// look reads the objects of the request's name from the cluster's cache.
func (k *ThreeKinds) look(ctx context.Context, f *Fleet, req mcreconcile.Request) error {
	cl, err := f.Manager.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return err
	}
	for kind, obj := range map[string]client.Object{
		"ConfigMap": &corev1.ConfigMap{}, "ServiceAccount": &corev1.ServiceAccount{}, "Service": &corev1.Service{},
	} {
		err := cl.GetClient().Get(ctx, req.NamespacedName, obj)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			continue
		}
		k.mu.Lock()
		if k.called == nil {
			k.called = map[string]map[string]int{}
		}
		if k.called[req.NamespacedName.String()] == nil {
			k.called[req.NamespacedName.String()] = map[string]int{}
		}
		k.called[req.NamespacedName.String()][kind]++
		k.mu.Unlock()
	}
	return nil
}

// Create creates three objects of one new name in the default namespace, one of each kind, and returns the name.
func (k *ThreeKinds) Create(t testing.TB, c client.Client) string {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: Unique("three")}
	for _, obj := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}},
	} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	return meta.Name
}

// SawAll reports whether the controller saw all three objects of a name.
func (k *ThreeKinds) SawAll(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.called["default/"+name]) == 3
}

// Errors returns what the controller's calls failed with.
func (k *ThreeKinds) Errors() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]error(nil), k.errs...)
}
