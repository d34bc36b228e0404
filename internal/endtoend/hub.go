package endtoend

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// AdminClient returns an administrator's client that knows ClusterProfiles, too.
func AdminClient(t testing.TB, plane *controlplane.ControlPlane) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := plane.Config()
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) })
	c, err := client.New(config, client.Options{Scheme: scheme, HTTPClient: httpClient})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Namespace creates a namespace, and returns its name.
func Namespace(t testing.TB, c client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// Profile creates a ClusterProfile whose control plane is healthy.
func Profile(t testing.TB, c client.Client, namespace, name string) *v1alpha1.ClusterProfile {
	t.Helper()
	profile := &v1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ClusterProfileSpec{ClusterManager: v1alpha1.ClusterManager{Name: "test"}},
	}
	if err := c.Create(t.Context(), profile); err != nil {
		t.Fatal(err)
	}
	profile.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ClusterConditionControlPlaneHealthy, Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.Now(),
	}}
	if err := c.Status().Update(t.Context(), profile); err != nil {
		t.Fatal(err)
	}
	return profile
}
