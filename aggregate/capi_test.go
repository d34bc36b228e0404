package aggregate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// management is a management cluster of Cluster API, as its controllers write to it.
type management struct {
	client.Client
	plane     *controlplane.ControlPlane
	namespace string
}

func newManagement(t *testing.T, name string) *management {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	plane := planes.Get(t, controlplane.Options{Name: name, CRDs: []controlplane.CRDs{controlplane.ClusterAPI}})
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "capi-"}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return &management{Client: c, plane: plane, namespace: namespace.Name}
}

// provision creates a Cluster whose control plane is initialized.
func (m *management) provision(t *testing.T, name string) {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AWSManagedCluster", Name: name}}}
	if err := m.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status.Initialization.ControlPlaneInitialized = new(true)
	if err := m.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

// writeKubeconfig writes the Cluster's kubeconfig Secret, as often as it is called.
func (m *management) writeKubeconfig(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": kubeconfig},
	}
	err := m.Update(t.Context(), secret)
	if client.IgnoreNotFound(err) == nil && err != nil {
		err = m.Create(t.Context(), secret)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kubeconfigWith is a kubeconfig for a proxy and a bearer token.
func kubeconfigWith(t *testing.T, proxy *faultproxy.TLSProxy, token string) []byte {
	t.Helper()
	type object = map[string]any
	data, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []object{{"name": "c", "cluster": object{"server": proxy.URL(), "certificate-authority-data": proxy.CAData()}}},
		"users":    []object{{"name": "u", "user": object{"token": token}}},
		"contexts": []object{{"name": "c", "context": object{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// threeKinds counts what a controller with three watches is called for: ConfigMaps, ServiceAccounts and Services,
// of equal names.
type threeKinds struct {
	mu     sync.Mutex
	called map[string]map[string]int // by the object's "namespace/name", then by kind
	errs   []error
}

// setUp adds the controller to a fleet that is not started yet.
func (k *threeKinds) setUp(t *testing.T, f *fleet) {
	t.Helper()
	err := mcbuilder.ControllerManagedBy(f.mgr).Named("three-kinds").For(&corev1.ConfigMap{}).
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

// look reads the objects of the request's name from the cluster's cache.
func (k *threeKinds) look(ctx context.Context, f *fleet, req mcreconcile.Request) error {
	cl, err := f.mgr.GetCluster(ctx, req.ClusterName)
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

// sawAll reports whether the controller saw all three objects of a name.
func (k *threeKinds) sawAll(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.called["default/"+name]) == 3
}

// Cluster API's provider for EKS writes a new token into the kubeconfig Secret at every reconcile. A hundred of them cost
// no LIST and no engagement, though the old ones are revoked, and a controller with three watches misses nothing.
func TestClusterAPIRotatesTokens(t *testing.T) {
	const rotations = 100
	hub := newManagement(t, "management")
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	proxy, err := faultproxy.StartTLS(plane.URL(), faultproxy.TLSOptions{CAData: plane.CAData()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	admin, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	user := newUser(t, plane, controlplane.Everything()...)
	token := issue(t, user)
	hub.provision(t, "prod")
	hub.writeKubeconfig(t, "prod", kubeconfigWith(t, proxy, token.Token()))

	backend, err := capi.New(capi.Options{Hub: hub.plane.Config(), Namespaces: []string{hub.namespace}})
	if err != nil {
		t.Fatal(err)
	}
	var kinds threeKinds
	f := newFleet(t, aggregate.Options{}, option(withoutControllers), func(f *fleet) { kinds.setUp(t, f) })
	if err := f.Add("capi", backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	public := "capi/" + hub.namespace + "/prod"
	eventually(t, "engaged", func() bool { return f.is(public, backends.Engaged, backends.ReasonReady) })
	put := func(round int) string {
		name := fmt.Sprintf("rotation-%d-%d", configMaps.Add(1), round)
		meta := metav1.ObjectMeta{Namespace: "default", Name: name}
		for _, obj := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta},
			&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}},
		} {
			if err := admin.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
		return name
	}
	first := put(0)
	eventually(t, "three kinds are watched", func() bool { return kinds.sawAll(first) })
	cl, err := f.Get(t.Context(), name(public))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Counter.Reset()

	begin := time.Now()
	for round := range rotations {
		next := issue(t, user)
		hub.writeKubeconfig(t, "prod", kubeconfigWith(t, proxy, next.Token()))
		eventually(t, "the new token is in force", func() bool {
			config, err := f.RESTConfigFor(t.Context(), name(public))
			return err == nil && config.BearerToken == next.Token()
		})
		if err := token.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		token = next
		objects := put(round + 1)
		eventually(t, "the controller sees three new objects", func() bool { return kinds.sawAll(objects) })
	}
	t.Logf("%d rotations in %v: %d requests at the member, %d of them watches", rotations, time.Since(begin).Round(time.Millisecond),
		proxy.Counter.Count(), proxy.Counter.Count(faultproxy.WithVerb(faultproxy.Watch)))
	if n := proxy.Counter.Relists(); n != 0 {
		t.Errorf("%d relists, want none", n)
	}
	if n := proxy.Counter.Count(faultproxy.WithStatus(401)); n != 0 {
		t.Errorf("%d requests were refused with 401, want none", n)
	}
	if now, err := f.Get(t.Context(), name(public)); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}
	kinds.mu.Lock()
	defer kinds.mu.Unlock()
	if len(kinds.errs) > 0 {
		t.Errorf("the controller saw %d errors, the first: %v", len(kinds.errs), kinds.errs[0])
	}
}
