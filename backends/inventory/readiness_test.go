package inventory_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
)

func withCondition(list []metav1.Condition, name string, status metav1.ConditionStatus) []metav1.Condition {
	if status == "" {
		return list
	}
	return append(list, metav1.Condition{Type: name, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()})
}

func TestReadiness(t *testing.T) {
	const absent = metav1.ConditionStatus("")
	inverted := inventory.Readiness{Conditions: []inventory.Condition{{
		Type: "Reachable", Unknown: inventory.Ready, Absent: inventory.Ready}}}
	tests := map[string]struct {
		readiness  inventory.Readiness
		condition  string
		status     metav1.ConditionStatus
		healthy    metav1.ConditionStatus
		wantReason backends.Reason // empty: engaged
	}{
		"not joined":                         {condition: "Joined", status: "False", healthy: "True", wantReason: backends.ReasonNotReady},
		"unknown whether it joined":          {condition: "Joined", status: "Unknown", healthy: "True", wantReason: backends.ReasonNotReady},
		"joined":                             {condition: "Joined", status: "True", healthy: "True"},
		"joined and unhealthy":               {condition: "Joined", status: "True", healthy: "False", wantReason: backends.ReasonControlPlaneUnhealthy},
		"no conditions count":                {readiness: inventory.Readiness{Conditions: []inventory.Condition{}}, healthy: absent},
		"another condition, absent":          {readiness: inverted, condition: "Reachable", status: absent},
		"another condition, unknown":         {readiness: inverted, condition: "Reachable", status: "Unknown"},
		"another condition, false":           {readiness: inverted, condition: "Reachable", status: "False", healthy: "True", wantReason: backends.ReasonNotReady},
		"false counts as ready":              {readiness: inventory.Readiness{Conditions: []inventory.Condition{{Type: "Old", False: inventory.Ready}}}, condition: "Old", status: "False"},
		"… but absent does not, for another": {readiness: inventory.Readiness{Conditions: []inventory.Condition{{Type: "Old", False: inventory.Ready}}}, wantReason: backends.ReasonNotReady},
	}
	hub := startHub(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			profile := newProfile(namespace, "prod", test.healthy)
			profile.Status.Conditions = withCondition(profile.Status.Conditions, test.condition, test.status)
			putMember(t, hub, profile)
			r := backendtest.Start(t, newBackend(t, inventory.Options{
				Hub: hub.Config(), Namespaces: []string{namespace}, Readiness: test.readiness}))
			if test.wantReason == "" {
				r.WaitEngaged(t, namespace+"/prod")
				return
			}
			if hold := r.WaitHeld(t, namespace+"/prod", test.wantReason); !hold.Keep {
				t.Error("an engagement would end")
			}
		})
	}
}

// Where it is configured, a profile that stays unready long enough loses its engagement, and gets it back.
func TestDisengagedWhenUnreadyForLong(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	putMember(t, hub, newProfile(namespace, "prod", metav1.ConditionTrue))
	r := backendtest.Start(t, newBackend(t, inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace},
		Readiness: inventory.Readiness{DisengageAfter: 500 * time.Millisecond}}))
	r.WaitEngaged(t, member)
	seen := len(r.Calls())
	hub.Put(t, newProfile(namespace, "prod", metav1.ConditionUnknown))
	r.Wait(t, "the engagement is given up", func(f backendtest.Fleet) bool {
		held := f.Members[member].Held
		return held != nil && !held.Keep
	})
	for _, call := range r.Calls()[seen:] {
		if call.Method == "Hold" {
			if call.Member.Held.Keep {
				break
			}
			t.Fatal("the engagement was given up at the first missed heartbeat")
		}
	}
	hub.Put(t, newProfile(namespace, "prod", metav1.ConditionTrue))
	r.WaitEngaged(t, member)
}
