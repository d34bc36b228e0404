package inventory_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
)

// putMember puts a healthy profile and a Secret for it.
func putMember(t *testing.T, hub *hubtest.Hub, profile *v1alpha1.ClusterProfile) {
	t.Helper()
	hub.Put(t, secretReading(profile.Namespace, profile.Name, accessTo(profile.Name).Kubeconfig()))
	hub.Put(t, profile)
}

func TestClusterManagersAndSets(t *testing.T) {
	hub := startHub(t)
	profile := func(namespace, name string, change func(*v1alpha1.ClusterProfile)) {
		p := newProfile(namespace, name, metav1.ConditionTrue)
		change(p)
		putMember(t, hub, p)
	}
	namespace := hub.Namespace(t, nil)
	profile(namespace, "gke", func(p *v1alpha1.ClusterProfile) { p.Spec.ClusterManager.Name = "gke-fleet" })
	profile(namespace, "module-label", func(p *v1alpha1.ClusterProfile) {
		p.Labels = map[string]string{"multicluster.x-k8s.io/clusterset": "blue"}
	})
	profile(namespace, "kep-label", func(p *v1alpha1.ClusterProfile) {
		p.Labels = map[string]string{"clusterset.multicluster.x-k8s.io": "blue"}
	})
	profile(namespace, "property", func(p *v1alpha1.ClusterProfile) {
		p.Labels = map[string]string{"multicluster.x-k8s.io/clusterset": "red"}
		p.Status.Properties = []v1alpha1.Property{{Name: "clusterset.k8s.io", Value: "blue"}}
	})
	tests := map[string]struct {
		options inventory.Options
		want    []string
	}{
		"a manager":               {inventory.Options{ClusterManagers: []string{"gke-fleet", "other"}}, []string{"gke"}},
		"a set":                   {inventory.Options{ClusterSets: []string{"blue"}}, []string{"kep-label", "module-label", "property"}},
		"both":                    {inventory.Options{ClusterManagers: []string{"gke-fleet"}, ClusterSets: []string{"blue"}}, nil},
		"an overridden set label": {inventory.Options{ClusterSets: []string{"red"}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.options.Hub, test.options.Namespaces = hub.Config(), []string{namespace}
			r := backendtest.Start(t, newBackend(t, test.options))
			r.WaitSynced(t)
			var engaged []string
			for member, m := range r.Fleet().Members {
				if m.Engaged != nil {
					engaged = append(engaged, strings.TrimPrefix(member, namespace+"/"))
				}
			}
			slices.Sort(engaged)
			if diff := cmp.Diff(test.want, engaged); diff != "" {
				t.Errorf("engaged clusters (-want +got):\n%s", diff)
			}
		})
	}
}

// A change of labels is a change of selection.
func TestClusterSetChanges(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	prod := newProfile(namespace, "prod", metav1.ConditionTrue)
	putMember(t, hub, prod)
	r := backendtest.Start(t, newBackend(t, inventory.Options{
		Hub: hub.Config(), Namespaces: []string{namespace}, ClusterSets: []string{"blue"}}))
	r.WaitSynced(t)
	hub.Label(t, prod, map[string]string{"multicluster.x-k8s.io/clusterset": "blue"})
	r.WaitEngaged(t, namespace+"/prod")
	hub.Label(t, prod, map[string]string{"multicluster.x-k8s.io/clusterset": "red"})
	r.WaitDisengaged(t, namespace+"/prod")
}

// slice returns a PlacementDecision of the placement "web".
func slice(namespace, name string, references ...v1alpha1.ClusterProfileReference) *v1alpha1.PlacementDecision {
	d := &v1alpha1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
		v1alpha1.PlacementKeyLabel: "web", v1alpha1.DecisionKeyLabel: "web-1"}}}
	d.Decisions = []v1alpha1.ClusterDecision{}
	for _, reference := range references {
		d.Decisions = append(d.Decisions, v1alpha1.ClusterDecision{ClusterProfileRef: reference})
	}
	return d
}

func named(names ...string) (references []v1alpha1.ClusterProfileReference) {
	for _, name := range names {
		references = append(references, v1alpha1.ClusterProfileReference{Name: name})
	}
	return references
}

// A decision in two slices that is rewritten with the second slice late: nobody is disengaged who is in one of
// them before and afterwards.
func TestPlacementRewrittenSliceBySlice(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		putMember(t, hub, newProfile(namespace, name, metav1.ConditionTrue))
	}
	hub.Put(t, slice(namespace, "web-0", named("a")...))
	hub.Put(t, slice(namespace, "web-1", named("b", "gone", "b")...))
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace},
		Placement: &inventory.Placement{Key: "web", Grace: time.Hour}}))
	r.WaitEngaged(t, namespace+"/a")
	r.WaitEngaged(t, namespace+"/b")
	r.WaitSynced(t)

	// b moves into the first slice and a into the second one, which is written later.
	hub.Put(t, slice(namespace, "web-0", named("c")...))
	r.WaitEngaged(t, namespace+"/c") // so the backend has seen that a is in no slice
	hub.Put(t, slice(namespace, "web-1", named("a")...))
	hub.Put(t, slice(namespace, "web-0", named("c", "b")...))
	d := newProfile(namespace, "d", metav1.ConditionTrue)
	putMember(t, hub, d)
	hub.Put(t, slice(namespace, "web-2", named("d")...))
	r.WaitEngaged(t, namespace+"/d") // and everything before it

	for _, call := range r.Calls() {
		if call.Method == "Disengage" && (call.Name == namespace+"/a" || call.Name == namespace+"/b") || call.Method == "Hold" && !call.Member.Held.Keep {
			t.Errorf("%s(%s) while slices were rewritten", call.Method, call.Name)
		}
	}
}

func TestPlacementEnds(t *testing.T) {
	hub := startHub(t)
	namespace, decisions := hub.Namespace(t, nil), hub.Namespace(t, nil)
	for _, name := range []string{"chosen", "other"} {
		putMember(t, hub, newProfile(namespace, name, metav1.ConditionTrue))
	}
	chosen := slice(decisions, "web", v1alpha1.ClusterProfileReference{Namespace: namespace, Name: "chosen"})
	hub.Put(t, chosen)
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace},
		Placement: &inventory.Placement{Key: "web", Namespaces: []string{decisions}, Grace: time.Millisecond}}))
	r.WaitEngaged(t, namespace+"/chosen")
	r.WaitSynced(t)
	if m := r.Fleet().Members[namespace+"/other"]; m.Engaged != nil || m.Held != nil {
		t.Error("a cluster that nobody chose is a member")
	}
	hub.Delete(t, chosen)
	r.WaitDisengaged(t, namespace+"/chosen")
	for _, call := range r.Calls() {
		if call.Method == "Disengage" && call.Name == namespace+"/chosen" && call.Member.Disengaged != backends.ReasonDeselected {
			t.Errorf("disengaged as %s", call.Member.Disengaged)
		}
	}
}
