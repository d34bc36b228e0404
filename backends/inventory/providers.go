package inventory

import (
	"errors"
	"fmt"
	"reflect"

	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// providers reads what ClusterProfiles say about access providers (KEP-5339), each only once as long as it stays the
// same. It is for one goroutine.
type providers struct {
	config access.Config
	policy connection.Policy

	read map[string]readAccess // by member
}

type readAccess struct {
	offered *v1alpha1.ClusterProfile
	spec    connection.Spec
	hold    *backends.Hold
}

func validateProviders(providers []access.Provider) error {
	seen := map[string]bool{}
	for _, provider := range providers {
		switch {
		case provider.Name == "":
			return errors.New("option Providers has one without a name")
		case seen[provider.Name]:
			return fmt.Errorf("option Providers has two named %q", provider.Name)
		case provider.ExecConfig == nil:
			return fmt.Errorf("option Providers: %q has no execConfig", provider.Name)
		}
		seen[provider.Name] = true
	}
	return nil
}

// spec returns how a member is reached, or why it is held. The Hold has neither Info nor Source nor Hints.
func (p *providers) spec(member string, offered *v1alpha1.ClusterProfile) (connection.Spec, *backends.Hold) {
	last, ok := p.read[member]
	if !ok || !reflect.DeepEqual(last.offered, offered) {
		last = p.parse(offered)
		if p.read == nil {
			p.read = map[string]readAccess{}
		}
		p.read[member] = last
	}
	if last.hold != nil {
		hold := *last.hold
		return connection.Spec{}, &hold
	}
	return last.spec, nil
}

func (p *providers) forget(member string) { delete(p.read, member) }

func (p *providers) parse(offered *v1alpha1.ClusterProfile) readAccess {
	result, err := connection.ParseAccessProvider(&p.config, offered, p.policy)
	if err == nil {
		return readAccess{offered: offered, spec: result.Spec}
	}
	hold := backends.Hold{
		Keep:    true,
		Message: fmt.Sprintf("ClusterProfile %s/%s: %s", offered.Namespace, offered.Name, err),
	}
	var problem *connection.AccessError
	switch {
	case !errors.As(err, &problem):
		hold.Reason, hold.Rejected, hold.Keep = backends.ReasonPolicyViolation, true, false
	case problem.Problem == connection.AccessNotOffered:
		hold.Reason = backends.ReasonNoAccessProvider
	case problem.Problem == connection.AccessNotMatched:
		hold.Reason = backends.ReasonNoMatchingProvider
	default:
		hold.Reason, hold.Rejected = backends.ReasonInvalidAccess, true
	}
	return readAccess{offered: offered, hold: &hold}
}
