package inventory

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// providers reads what ClusterProfiles say about access providers (KEP-5339), each only once as long as it stays the
// same. It is for one goroutine.
type providers struct {
	config func() *access.Config // returns another pointer when it has changed
	policy connection.Policy
	tokens *tokens // nil if no token is read from a Secret

	used *access.Config        // what was read with
	read map[string]readAccess // by member
}

type readAccess struct {
	offered offer
	native  bool              // by the token of a Secret
	cluster string            // whose token that is
	token   connection.Secret // what was read with
	spec    connection.Spec
	hold    *backends.Hold
}

func validateProviders(providers []access.Provider) error {
	seen := map[string]bool{}
	for _, provider := range providers {
		switch {
		case provider.Name == "":
			return errors.New("an access provider has no name")
		case seen[provider.Name]:
			return fmt.Errorf("two access providers are named %q", provider.Name)
		case provider.ExecConfig == nil:
			return fmt.Errorf("access provider %q has no execConfig", provider.Name)
		}
		seen[provider.Name] = true
	}
	return nil
}

// spec returns how a member is reached, or why it is held. The Hold has neither Info nor Source nor Hints.
func (p *providers) spec(member string, profile *profile) (connection.Spec, *backends.Hold) {
	if config := p.config(); config != p.used {
		p.used, p.read = config, nil
	}
	last, ok := p.read[member]
	if !ok || !reflect.DeepEqual(last.offered, profile.access) {
		last = p.choose(profile)
		if p.tokens != nil {
			p.tokens.want(member, last.cluster)
		}
		ok = false
	}
	if last.native {
		token, hold := p.tokens.get(last.cluster)
		if hold != nil {
			delete(p.read, member)
			hold.Message = profile.reference.String() + ": " + hold.Message
			return connection.Spec{}, hold
		}
		ok = ok && token.Equal(last.token)
		last.token = token
	}
	if !ok {
		last = p.parse(profile, last)
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

func (p *providers) forget(member string) {
	delete(p.read, member)
	if p.tokens != nil {
		p.tokens.want(member, "")
	}
}

// choose finds out whether a profile's access is by the token of a Secret.
func (p *providers) choose(profile *profile) readAccess {
	read := readAccess{offered: profile.access}
	if p.tokens == nil {
		return read
	}
	// Errors are those of parse.
	if offered, ok := profile.access.decode(); ok {
		name, cluster, err := connection.ChooseAccessProvider(p.used, offered)
		if err == nil && slices.Contains(p.tokens.opts.Providers, name) {
			read.native, read.cluster = true, cluster
		}
	}
	return read
}

func (p *providers) parse(profile *profile, read readAccess) readAccess {
	offered, ok := profile.access.decode()
	if !ok {
		read.hold = &backends.Hold{Reason: backends.ReasonInvalidAccess, Rejected: true, Keep: true, Message: formless(profile)}
		return read
	}
	var result connection.Result
	var err error
	if read.native {
		var name string
		if name, _, err = connection.ChooseAccessProvider(p.used, offered); err == nil {
			result, err = connection.ParseAccessToken(name, offered, read.token, p.policy)
		}
	} else {
		result, err = connection.ParseAccessProvider(p.used, offered, p.policy)
	}
	if err == nil {
		read.spec = result.Spec
		return read
	}
	hold := backends.Hold{Keep: true, Message: fmt.Sprintf("%s: %s", profile.reference, err)}
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
	read.hold = &hold
	return read
}

// decode returns a profile that holds what is offered and nothing else, or false if it does not have the form of an
// offer. The decoder's error is not passed on: it quotes what it stumbled over.
func (o offer) decode() (*v1alpha1.ClusterProfile, bool) {
	decoded := new(v1alpha1.ClusterProfile)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": map[string]any{
		"accessProviders": o.accessProviders, "credentialProviders": o.credentialProviders,
	}}, decoded)
	return decoded, err == nil
}
