package inventory

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/tributary-fleet/tributary/backends"
)

// Readiness says when a profile's cluster is ready to be engaged, and what happens when it is ready no more.
type Readiness struct {
	// Conditions are what a profile's conditions have to say, all of them. Nil: ControlPlaneHealthy has to be
	// True, and Joined, which Open Cluster Management writes, has to be True where it is there. Empty but not nil:
	// every profile is ready.
	Conditions []Condition
	// DisengageAfter is for how long a profile has to be unready, without interruption and as far as the hub says so, until
	// its cluster is disengaged. Zero: it stays engaged, since readiness is only as good as the manager's last heartbeat.
	DisengageAfter time.Duration
}

// Condition is a condition of a ClusterProfile that counts for readiness. True is always ready.
type Condition struct {
	// Type is the condition's type. Required.
	Type string
	// False, Unknown and Absent say what it means that the condition is False, Unknown (or of any other status), or
	// not there. Default: NotReady.
	False, Unknown, Absent Meaning
}

// Meaning is what a condition's status says about readiness.
type Meaning string

const (
	// NotReady: the cluster is not ready.
	NotReady Meaning = ""
	// Ready: the cluster is as ready as if the condition were True.
	Ready Meaning = "Ready"
)

func (r Readiness) validate() error {
	if r.DisengageAfter < 0 {
		return errors.New("option Readiness.DisengageAfter is negative")
	}
	for _, c := range r.Conditions {
		if c.Type == "" {
			return errors.New("option Readiness.Conditions has one without a type")
		}
		for _, meaning := range []Meaning{c.False, c.Unknown, c.Absent} {
			if meaning != Ready && meaning != NotReady {
				return fmt.Errorf("option Readiness.Conditions: %s has the meaning %q, which is none", c.Type, meaning)
			}
		}
	}
	return nil
}

// conditions returns the conditions that count.
func (r Readiness) conditions() []Condition {
	if r.Conditions != nil {
		return r.Conditions
	}
	return []Condition{{Type: v1alpha1.ClusterConditionControlPlaneHealthy}, {Type: "Joined", Absent: Ready}}
}

// condition is what a profile says about one of them.
type condition struct {
	status  metav1.ConditionStatus
	message string // unless True
}

func (c Condition) meaning(of condition, present bool) Meaning {
	switch {
	case !present:
		return c.Absent
	case of.status == metav1.ConditionTrue:
		return Ready
	case of.status == metav1.ConditionFalse:
		return c.False
	}
	return c.Unknown
}

// unready returns why a profile is not ready, or nil if it is.
func unready(conditions []Condition, p *profile) *backends.Hold {
	for _, c := range conditions {
		said, present := p.conditions[c.Type]
		if c.meaning(said, present) == Ready {
			continue
		}
		hold := &backends.Hold{Reason: backends.ReasonNotReady, Keep: true}
		if c.Type == v1alpha1.ClusterConditionControlPlaneHealthy {
			hold.Reason = backends.ReasonControlPlaneUnhealthy
		}
		if !present {
			hold.Message = fmt.Sprintf("%s has no condition %s yet", p.reference, c.Type)
			return hold
		}
		hold.Message = fmt.Sprintf("%s has the condition %s=%s", p.reference, c.Type, said.status)
		if said.message != "" {
			hold.Message += ": " + said.message
		}
		return hold
	}
	return nil
}
