package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

const consumer = "tributary"

func startHub(t *testing.T) *hubtest.Hub {
	return hubtest.New(t, planes.Get(t, controlplane.Options{
		Name: "hub", CRDs: []controlplane.CRDs{controlplane.ClusterInventory}}))
}

func newBackend(t *testing.T, opts inventory.Options) *inventory.Backend {
	t.Helper()
	opts.Consumer = consumer
	b, err := inventory.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newProfile returns a ClusterProfile with the condition ControlPlaneHealthy, unless healthy is empty.
func newProfile(namespace, name string, healthy metav1.ConditionStatus) *v1alpha1.ClusterProfile {
	profile := &v1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ClusterProfileSpec{ClusterManager: v1alpha1.ClusterManager{Name: "test"}},
		Status:     v1alpha1.ClusterProfileStatus{Conditions: []metav1.Condition{}},
	}
	if healthy != "" {
		profile.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ClusterConditionControlPlaneHealthy, Status: healthy, Reason: "Test",
			Message: "the test says so", LastTransitionTime: metav1.Now(),
		}}
	}
	return profile
}

// secretReading returns a Secret as multicluster-runtime's provider wants it.
func secretReading(namespace, profile string, kubeconfig []byte) *corev1.Secret {
	return hubtest.Secret(namespace, profile+"-access", map[string]string{
		"x-k8s.io/cluster-inventory-consumer": consumer,
		"x-k8s.io/cluster-profile":            profile,
	}, map[string][]byte{"Config": kubeconfig})
}

// namespaceReading returns a Secret as KEP-4322 wants it, to be put into a namespace with the consumer's label.
func namespaceReading(namespace, profileNamespace, profile string, kubeconfig []byte) *corev1.Secret {
	return hubtest.Secret(namespace, profile+"-access", map[string]string{
		"x-k8s.io/cluster-profile":           profile,
		"x-k8s.io/cluster-profile-namespace": profileNamespace,
	}, map[string][]byte{"Config": kubeconfig})
}

func consumerLabels() map[string]string {
	return map[string]string{"x-k8s.io/cluster-inventory-consumer": consumer}
}

func accessTo(name string) backendtest.Access {
	return backendtest.Access{Server: "https://" + name + ".example.com/clusters/" + name, Token: name}
}

func TestConformance(t *testing.T) {
	hub := startHub(t)
	stop := func(t *testing.T) {
		if err := hub.StopAPIServer(); err != nil {
			t.Fatal(err)
		}
	}
	start := func(t *testing.T) {
		if err := hub.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("consumer on the Secret", func(t *testing.T) {
		backendtest.Run(t, backendtest.Harness{New: func(t *testing.T) backendtest.Inventory {
			hub := startHub(t)
			namespace := hub.Namespace(t, nil)
			put := func(t *testing.T, name string, data []byte) {
				hub.Put(t, secretReading(namespace, name, data))
				hub.Put(t, newProfile(namespace, name, metav1.ConditionTrue))
			}
			return backendtest.Inventory{
				Backend: newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace}}),
				Member:  func(name string) string { return namespace + "/" + name },
				Put:     func(t *testing.T, name string, a backendtest.Access) { put(t, name, a.Kubeconfig()) },
				Break:   func(t *testing.T, name string) { put(t, name, backendtest.BrokenKubeconfig()) },
				Delete:  func(t *testing.T, name string) { hub.Delete(t, newProfile(namespace, name, "")) },
			}
		}})
	})
	t.Run("consumer on the namespace", func(t *testing.T) {
		backendtest.Run(t, backendtest.Harness{StopHub: stop, StartHub: start, New: func(t *testing.T) backendtest.Inventory {
			hub := startHub(t)
			// Watching all namespaces, the backends of all tests see all profiles: a label keeps them apart.
			profiles, secrets := hub.Namespace(t, nil), hub.Namespace(t, consumerLabels())
			put := func(t *testing.T, name string, data []byte) {
				profile := newProfile(profiles, name, metav1.ConditionTrue)
				profile.Labels = map[string]string{"test": profiles}
				hub.Put(t, profile)
				hub.Put(t, namespaceReading(secrets, profiles, name, data))
			}
			return backendtest.Inventory{
				Backend: newBackend(t, inventory.Options{Hub: hub.Config(), LabelSelector: "test=" + profiles}),
				Member:  func(name string) string { return profiles + "/" + name },
				Put:     func(t *testing.T, name string, a backendtest.Access) { put(t, name, a.Kubeconfig()) },
				Break:   func(t *testing.T, name string) { put(t, name, backendtest.BrokenKubeconfig()) },
				Delete:  func(t *testing.T, name string) { hub.Delete(t, newProfile(profiles, name, "")) },
			}
		}})
	})
}

// The condition decides whether a cluster is engaged first, and nothing about one that is engaged.
func TestHealth(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	hub.Put(t, secretReading(namespace, "prod", accessTo("prod").Kubeconfig()))
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	for _, status := range []metav1.ConditionStatus{"", metav1.ConditionUnknown, metav1.ConditionFalse} {
		hub.Put(t, newProfile(namespace, "prod", status))
		if hold := r.WaitHeld(t, member, backends.ReasonControlPlaneUnhealthy); !hold.Keep || hold.Rejected {
			t.Errorf("ControlPlaneHealthy=%q: held as %+v", status, hold)
		}
		hub.Put(t, newProfile(namespace, "prod", metav1.ConditionTrue))
		r.WaitEngaged(t, member)
	}
}

func TestInfoAndHints(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	profile := newProfile(namespace, "prod", metav1.ConditionTrue)
	profile.Labels = map[string]string{"env": "prod", "multicluster.x-k8s.io/inventory-member-id": "m1"}
	profile.Annotations = map[string]string{
		"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "a copy of the object"}
	profile.Spec.DisplayName = "Production"
	profile.Status.Version.Kubernetes = "v1.36.3"
	profile.Status.Properties = []v1alpha1.Property{
		{Name: "cluster.clusterset.k8s.io", Value: "uid-1", LastObservedTime: metav1.Now()},
		{Name: "clusterset.k8s.io", Value: "set-1", LastObservedTime: metav1.Now()},
		{Name: "region", Value: "eu", LastObservedTime: metav1.Now()},
	}
	hub.Put(t, profile)
	hub.Put(t, secretReading(namespace, "prod", accessTo("prod").Kubeconfig()))
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	engaged := r.WaitEngaged(t, namespace+"/prod")
	wantInfo := backends.Info{
		DisplayName: "Production", Manager: "test", KubernetesVersion: "v1.36.3",
		Labels: profile.Labels, Annotations: map[string]string{"note": "n"},
		Properties: map[string]string{"cluster.clusterset.k8s.io": "uid-1", "clusterset.k8s.io": "set-1", "region": "eu"},
	}
	if diff := cmp.Diff(wantInfo, engaged.Info); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	wantHints := backends.Identity{MemberID: "m1", ClusterID: "uid-1", ClusterSet: "set-1"}
	if diff := cmp.Diff(wantHints, engaged.Hints); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
}

// Heartbeats change times only, and nobody hears of them.
func TestHeartbeatsSayNothing(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	hub.Put(t, secretReading(namespace, "prod", accessTo("prod").Kubeconfig()))
	hub.Put(t, newProfile(namespace, "prod", metav1.ConditionTrue))
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	r.WaitEngaged(t, member)
	r.WaitSynced(t)
	seen := len(r.Calls())
	for i := range 20 {
		beat := newProfile(namespace, "prod", metav1.ConditionTrue)
		beat.Status.Conditions[0].LastTransitionTime.Time = beat.Status.Conditions[0].LastTransitionTime.AddDate(0, 0, i)
		hub.Put(t, beat)
	}
	// Events come in order: once the last change is seen, all heartbeats have been.
	last := newProfile(namespace, "prod", metav1.ConditionTrue)
	last.Spec.DisplayName = "renamed"
	hub.Put(t, last)
	r.Wait(t, "the profile is renamed", func(f backendtest.Fleet) bool {
		c := f.Members[member].Engaged
		return c != nil && c.Info.DisplayName == "renamed"
	})
	var methods []string
	for _, call := range r.Calls()[seen:] {
		methods = append(methods, call.Method)
	}
	if diff := cmp.Diff([]string{"Engage"}, methods); diff != "" {
		t.Errorf("calls after 20 heartbeats and a change (-want +got):\n%s", diff)
	}
}
