package inventory_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
)

// A manager that moves from the deprecated field to its successor changes no connection, and the rights that the
// options' documentation names suffice.
func TestDeprecatedFieldIsLeftBehind(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	user, err := hub.NewUser(t.Context(), "reader-of-"+namespace, rbacv1.PolicyRule{
		APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"clusterprofiles"}, Verbs: []string{"list", "watch"}})
	if err != nil {
		t.Fatal(err)
	}
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	backend, err := inventory.New(inventory.Options{
		Hub: token.Config(), Namespaces: []string{namespace}, Providers: []access.Provider{ocm()}})
	if err != nil {
		t.Fatal(err)
	}
	offers := []v1alpha1.AccessProvider{offer("open-cluster-management", "https://proxy.example.com:9092/prod")}
	put := func(version string, deprecated, current []v1alpha1.AccessProvider) {
		profile := newProfile(namespace, "prod", metav1.ConditionTrue)
		profile.Status.Version.Kubernetes = version
		profile.Status.CredentialProviders, profile.Status.AccessProviders = deprecated, current
		hub.Put(t, profile)
	}
	put("v1", offers, nil)
	r := backendtest.Start(t, backend)
	first := r.WaitEngaged(t, member)
	r.WaitSynced(t)
	seen := len(r.Calls())
	put("v2", offers, offers)
	put("v3", nil, offers)
	r.Wait(t, "the last update is known", func(f backendtest.Fleet) bool {
		c := f.Members[member].Engaged
		return c != nil && c.Info.KubernetesVersion == "v3"
	})
	for _, call := range r.Calls()[seen:] {
		if call.Method != "Engage" || !call.Member.Engaged.Connection.Equal(first.Connection) {
			t.Errorf("%s(%s) while a field moved", call.Method, call.Name)
		}
	}
}
