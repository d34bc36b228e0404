package hub

import (
	"context"
	"errors"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// Kubeconfigs reads the kubeconfigs of members, each only once as long as it stays the same. It is for one goroutine.
type Kubeconfigs struct {
	// Policy is what they have to conform to.
	Policy connection.Policy
	// Context is the context to use. Empty: the current one.
	Context string

	read map[string]readKubeconfig // by member
}

type readKubeconfig struct {
	raw  connection.Secret
	spec connection.Spec
	hold *backends.Hold
}

// Spec returns how the member is reached according to key of the Secret, or why it is held:
//
//   - the key is missing or empty: waited for, and a running engagement is kept or not, as keep says;
//   - the kubeconfig is unusable: rejected, and a running engagement stays, since damaged data says nothing
//     about the cluster;
//   - policy refuses it: rejected, and a running engagement ends.
//
// The Hold has neither Info nor Source nor Hints.
func (k *Kubeconfigs) Spec(ctx context.Context, member string, secret Secret, key string, keep bool) (connection.Spec, *backends.Hold) {
	raw := secret.Data[key]
	if raw.IsZero() {
		delete(k.read, member)
		return connection.Spec{}, &backends.Hold{Reason: backends.ReasonKeyNotFound, Keep: keep,
			Message: secret.Reference.String() + " has no data under the key " + key}
	}
	last, ok := k.read[member]
	if !ok || !last.raw.Equal(raw) {
		last = k.parse(ctx, secret, raw)
		if k.read == nil {
			k.read = map[string]readKubeconfig{}
		}
		k.read[member] = last
	}
	if last.hold != nil {
		hold := *last.hold
		return connection.Spec{}, &hold
	}
	return last.spec, nil
}

// Forget drops what was read for a member that is gone.
func (k *Kubeconfigs) Forget(member string) { delete(k.read, member) }

func (k *Kubeconfigs) parse(ctx context.Context, secret Secret, raw connection.Secret) readKubeconfig {
	result, err := connection.ParseKubeconfig(ctx, []byte(raw.Reveal()), connection.KubeconfigOptions{Policy: k.Policy, Context: k.Context})
	if err == nil {
		return readKubeconfig{raw: raw, spec: result.Spec}
	}
	hold := backends.Hold{Reason: backends.ReasonInvalidKubeconfig, Rejected: true, Keep: true}
	var refused *connection.PolicyError
	if errors.As(err, &refused) {
		hold.Reason, hold.Keep = backends.ReasonPolicyViolation, false
	}
	hold.Message = secret.Reference.String() + ": " + err.Error()
	return readKubeconfig{raw: raw, hold: &hold}
}
