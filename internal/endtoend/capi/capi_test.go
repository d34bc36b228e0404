package capi_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
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
	return &management{Client: c, plane: plane, namespace: endtoend.Namespace(t, c)}
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

// Cluster API's provider for EKS writes a new token into the kubeconfig Secret at every reconcile. A hundred of them cost
// no LIST and no engagement, though the old ones are revoked, and a controller with three watches misses nothing.
func TestClusterAPIRotatesTokens(t *testing.T) {
	const rotations = 100
	hub := newManagement(t, "management")
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	proxy := endtoend.Counting(t, plane)
	admin, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	user := endtoend.NewUser(t, plane, controlplane.Everything()...)
	token := endtoend.Issue(t, user)
	hub.provision(t, "prod")
	hub.writeKubeconfig(t, "prod", endtoend.Kubeconfig(t, proxy.URL(), proxy.CAData(), token.Token()))

	backend, err := capi.New(capi.Options{Hub: hub.plane.Config(), Namespaces: []string{hub.namespace}})
	if err != nil {
		t.Fatal(err)
	}
	var kinds endtoend.ThreeKinds
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithoutController(), endtoend.Before(kinds.Watch(t)))
	if err := f.Add("capi", backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Rotate(t, &kinds, endtoend.Rotation{Cluster: "capi/" + hub.namespace + "/prod", Admin: admin, Proxy: proxy, User: user, Token: token, Times: rotations,
		Write: func(token string) {
			hub.writeKubeconfig(t, "prod", endtoend.Kubeconfig(t, proxy.URL(), proxy.CAData(), token))
		}})
}
