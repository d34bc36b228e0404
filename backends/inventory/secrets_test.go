package inventory_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
)

// A namespace that gets or loses the consumer's label changes what its Secrets are for.
func TestConsumerLabelOfNamespace(t *testing.T) {
	hub := startHub(t)
	profiles, secrets := hub.Namespace(t, nil), hub.Namespace(t, nil)
	profile := newProfile(profiles, "prod", metav1.ConditionTrue)
	profile.Labels = map[string]string{"test": profiles}
	hub.Put(t, profile)
	hub.Put(t, namespaceReading(secrets, profiles, "prod", accessTo("prod").Kubeconfig()))
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), LabelSelector: "test=" + profiles}))
	r.WaitHeld(t, profiles+"/prod", backends.ReasonNoAccess)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: secrets}}
	hub.Label(t, namespace, consumerLabels())
	r.WaitEngaged(t, profiles+"/prod")
	hub.Label(t, namespace, map[string]string{"x-k8s.io/cluster-inventory-consumer": "another"})
	if hold := r.WaitHeld(t, profiles+"/prod", backends.ReasonNoAccess); !hold.Keep {
		t.Error("access that is taken away ends the engagement")
	}
}

// In KEP-4322's reading, a Secret without the label for the profile's namespace speaks for one in "default".
func TestProfileNamespaceDefaultsToDefault(t *testing.T) {
	hub := startHub(t)
	secrets := hub.Namespace(t, consumerLabels())
	profile := newProfile("default", "prod", metav1.ConditionTrue)
	profile.Labels = map[string]string{"test": secrets}
	hub.Put(t, profile)
	t.Cleanup(func() { hub.Delete(t, profile) })
	secret := namespaceReading(secrets, "", "prod", accessTo("prod").Kubeconfig())
	delete(secret.Labels, "x-k8s.io/cluster-profile-namespace")
	hub.Put(t, secret)
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), LabelSelector: "test=" + secrets}))
	r.WaitEngaged(t, "default/prod")
}

// With rights in some namespaces only, the namespaces for the consumer are given instead of found by their label.
func TestConsumerNamespaces(t *testing.T) {
	hub := startHub(t)
	profiles, secrets := hub.Namespace(t, nil), hub.Namespace(t, nil)
	hub.Put(t, newProfile(profiles, "prod", metav1.ConditionTrue))
	hub.Put(t, namespaceReading(secrets, profiles, "prod", accessTo("prod").Kubeconfig()))
	r := backendtest.Start(t, newBackend(t, inventory.Options{
		Hub: hub.Config(), Namespaces: []string{profiles}, ConsumerNamespaces: []string{secrets}}))
	r.WaitEngaged(t, profiles+"/prod")
}

func TestSecretsThatAreNotForUs(t *testing.T) {
	hub := startHub(t)
	profiles, other := hub.Namespace(t, nil), hub.Namespace(t, nil)
	config := accessTo("prod").Kubeconfig()
	tests := map[string]func() *corev1.Secret{
		"another consumer's": func() *corev1.Secret {
			s := secretReading(profiles, "prod", config)
			s.Labels["x-k8s.io/cluster-inventory-consumer"] = "another"
			return s
		},
		"another profile's": func() *corev1.Secret {
			s := secretReading(profiles, "prod", config)
			s.Labels["x-k8s.io/cluster-profile"] = "test"
			return s
		},
		"no consumer's": func() *corev1.Secret {
			s := secretReading(profiles, "prod", config)
			delete(s.Labels, "x-k8s.io/cluster-inventory-consumer")
			return s
		},
		"in another namespace, where the profile's owner has no say": func() *corev1.Secret {
			s := secretReading(other, "prod", config)
			s.Labels["x-k8s.io/cluster-profile-namespace"] = profiles
			return s
		},
	}
	hub.Put(t, newProfile(profiles, "prod", metav1.ConditionTrue))
	for name, secret := range tests {
		t.Run(name, func(t *testing.T) {
			hub.Put(t, secret())
			r := backendtest.Start(t, newBackend(t, inventory.Options{
				Hub: hub.Config(), Namespaces: []string{profiles, other}}))
			r.WaitSynced(t)
			if f := r.Fleet(); f.Members[profiles+"/prod"].Held == nil {
				t.Errorf("engaged with a Secret that is not for it; the fleet: %s", f)
			}
			hub.Delete(t, secret())
		})
	}
}

// Of several Secrets the oldest counts, and the next one when it goes.
func TestOldestSecretCounts(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	hub.Put(t, newProfile(namespace, "prod", metav1.ConditionTrue))
	older := secretReading(namespace, "prod", accessTo("older").Kubeconfig())
	older.Name = "z"
	hub.Put(t, older)
	hub.NextSecond(t, older)
	younger := secretReading(namespace, "prod", accessTo("younger").Kubeconfig())
	younger.Name = "a"
	hub.Put(t, younger)
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	r.WaitSynced(t)
	if c := r.WaitEngaged(t, namespace+"/prod"); c.Connection.Endpoint.Server != accessTo("older").Server {
		t.Errorf("engaged at %s, want the older Secret's server", c.Connection.Endpoint.Server)
	}
	hub.Delete(t, older)
	r.Wait(t, "the younger Secret takes over", func(f backendtest.Fleet) bool {
		c := f.Members[namespace+"/prod"].Engaged
		return c != nil && c.Connection.Endpoint.Server == accessTo("younger").Server
	})
}
