package inventory

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// profiles makes members of ClusterProfiles and what gives access to them, for one run.
type profiles struct {
	engager     backends.Engager
	source      *hub.Source[profile]
	secrets     *secrets
	kubeconfigs hub.Kubeconfigs
}

func newProfiles(opts Options, engager backends.Engager) *profiles {
	return &profiles{
		engager:     engager,
		kubeconfigs: hub.Kubeconfigs{Policy: opts.Policy},
		secrets:     newSecrets(opts),
		source: hub.NewSource(hub.SourceOptions[profile]{
			Kind:          profileKind(),
			Namespaces:    opts.Namespaces,
			LabelSelector: opts.LabelSelector,
			View:          func(u *unstructured.Unstructured) (profile, bool) { return viewProfile(u), true },
			Members:       func(p profile) []string { return []string{p.reference.Namespace + "/" + p.reference.Name} },
		}),
	}
}

// reconcile says what is true of a member, or of all members that a namespace's Secrets may concern.
func (p *profiles) reconcile(ctx context.Context, member string) {
	namespace, _, isMember := strings.Cut(member, "/")
	if !isMember {
		for _, secret := range p.secrets.source.InNamespace(namespace) {
			for _, member := range claims(secret) {
				p.reconcile(ctx, member)
			}
		}
		return
	}
	profile, ok := p.source.Get(member)
	if !ok {
		if p.source.Unlisted(namespace) == nil {
			p.kubeconfigs.Forget(member)
			p.engager.Disengage(member, backends.ReasonDeleted)
		}
		return
	}
	hold := func(h backends.Hold) {
		h.Info, h.Source, h.Hints = profile.info, profile.reference, profile.hints
		p.engager.Hold(member, h)
	}
	switch {
	case profile.problem != "":
		hold(backends.Hold{Reason: backends.ReasonInvalidAccess, Rejected: true, Keep: true,
			Message: fmt.Sprintf("%s cannot be understood: %s", profile.reference, profile.problem)})
		return
	case profile.healthy != metav1.ConditionTrue:
		hold(backends.Hold{Reason: backends.ReasonControlPlaneUnhealthy, Keep: true, Message: unhealthy(profile)})
		return
	}
	secret, ok := p.secrets.forProfile(member)
	if !ok {
		hold(p.secrets.missing(member))
		return
	}
	spec, h := p.kubeconfigs.Spec(ctx, member, secret, secretKey, true)
	if h != nil {
		hold(*h)
		return
	}
	p.engager.Engage(backends.Cluster{
		Name: member, Connection: spec, Info: profile.info, Source: profile.reference, Hints: profile.hints})
}

// unhealthy says for people why a profile is not ready.
func unhealthy(p profile) string {
	if p.healthy == "" {
		return p.reference.String() + " has no condition ControlPlaneHealthy yet"
	}
	text := fmt.Sprintf("%s has the condition ControlPlaneHealthy=%s", p.reference, p.healthy)
	if p.unhealthy != "" {
		text += ": " + p.unhealthy
	}
	return text
}
