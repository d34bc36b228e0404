package inventory_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
)

// A token Secret may come late, lack its key, be rotated and be deleted.
func TestTokenSecrets(t *testing.T) {
	hub := startHub(t)
	namespace, tokens := hub.Namespace(t, nil), hub.Namespace(t, nil)
	member := namespace + "/prod"
	profile := newProfile(namespace, "prod", metav1.ConditionTrue)
	profile.Status.AccessProviders = []v1alpha1.AccessProvider{offer("open-cluster-management", "https://proxy.example.com:9092/prod")}
	hub.Put(t, profile)
	backend, err := inventory.New(inventory.Options{
		Hub: hub.Config(), Namespaces: []string{namespace}, Providers: []access.Provider{ocm()},
		TokenSecrets: &inventory.TokenSecrets{Providers: []string{"open-cluster-management"}, Namespace: tokens},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := backendtest.Start(t, backend)
	r.WaitHeld(t, member, backends.ReasonSecretNotFound)
	hub.Put(t, hubtest.Secret(tokens, "prod", nil, map[string][]byte{"other": []byte("x")}))
	r.WaitHeld(t, member, backends.ReasonKeyNotFound)
	for _, token := range []string{"first", "second"} {
		hub.Put(t, hubtest.Secret(tokens, "prod", nil, map[string][]byte{"token": []byte(token)}))
		f := r.Wait(t, "engaged with the token "+token, func(f backendtest.Fleet) bool {
			c := f.Members[member].Engaged
			return c != nil && c.Connection.Auth.Token.Reveal() == token
		})
		c := f.Members[member].Engaged.Connection
		if c.Endpoint.Server != "https://proxy.example.com:9092/prod" || c.Auth.Exec != nil {
			t.Errorf("engaged with another connection: %+v", c)
		}
	}
	hub.Delete(t, hubtest.Secret(tokens, "prod", nil, nil))
	if hold := r.WaitHeld(t, member, backends.ReasonSecretNotFound); !hold.Keep {
		t.Error("a missing token Secret ends the engagement")
	}
}
