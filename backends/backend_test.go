package backends_test

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two clusters are equal only if every field is: a heartbeat that is taken for another cluster costs an engagement, and
// a change that is taken for a heartbeat is lost.
func TestClusterEqual(t *testing.T) {
	base := func() backends.Cluster {
		return backends.Cluster{
			Name:       "n",
			Connection: connection.Spec{Endpoint: connection.Endpoint{Server: "https://one"}, Auth: connection.Auth{Token: connection.NewSecret("t")}},
			Info: backends.Info{DisplayName: "d", Manager: "m", KubernetesVersion: "v1",
				Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}, Properties: map[string]string{"p": "1"}},
			Source: backends.ObjectReference{Kind: "Secret", Name: "n", UID: "u"},
			Hints:  backends.Identity{MemberID: "id"},
		}
	}
	if !base().Equal(base()) {
		t.Error("the same cluster is not equal to itself")
	}
	for name, change := range map[string]func(*backends.Cluster){
		"name":       func(c *backends.Cluster) { c.Name = "x" },
		"token":      func(c *backends.Cluster) { c.Connection.Auth.Token = connection.NewSecret("x") },
		"server":     func(c *backends.Cluster) { c.Connection.Endpoint.Server = "https://two" },
		"title":      func(c *backends.Cluster) { c.Info.DisplayName = "x" },
		"manager":    func(c *backends.Cluster) { c.Info.Manager = "x" },
		"version":    func(c *backends.Cluster) { c.Info.KubernetesVersion = "x" },
		"label":      func(c *backends.Cluster) { c.Info.Labels["l"] = "2" },
		"annotation": func(c *backends.Cluster) { c.Info.Annotations = nil },
		"property":   func(c *backends.Cluster) { c.Info.Properties["q"] = "1" },
		"source":     func(c *backends.Cluster) { c.Source.UID = "x" },
		"hints":      func(c *backends.Cluster) { c.Hints.MemberID = "x" },
	} {
		changed := base()
		change(&changed)
		if base().Equal(changed) {
			t.Errorf("a change of the %s goes unnoticed", name)
		}
	}
}

func TestNotEngagedError(t *testing.T) {
	err := fmt.Errorf("reconcile: %w", &backends.NotEngagedError{
		Name: "prod/a", State: backends.Disconnected, Reason: backends.ReasonTimeout, Message: "no answer"})
	if !errors.Is(err, backends.ErrNotEngaged) {
		t.Error("it does not match ErrNotEngaged")
	}
	if want := `reconcile: cluster "prod/a" not engaged: Disconnected (Timeout): no answer`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestObjectReferenceString(t *testing.T) {
	for want, r := range map[string]backends.ObjectReference{
		"Secret ns/n":  {Kind: "Secret", Namespace: "ns", Name: "n"},
		"ns/n":         {Namespace: "ns", Name: "n"},
		"/etc/fleet/a": {File: "/etc/fleet/a", Name: "context"},
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
