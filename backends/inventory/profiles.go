package inventory

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// profiles makes members of ClusterProfiles and what gives access to them, for one run.
type profiles struct {
	engager     backends.Engager
	source      *hub.Source[profile]
	providers   *providers // nil if none is configured
	secrets     *secrets   // nil if no Secret is read
	kubeconfigs hub.Kubeconfigs
}

func newProfiles(opts Options, engager backends.Engager) *profiles {
	p := &profiles{
		engager:     engager,
		kubeconfigs: hub.Kubeconfigs{Policy: opts.Policy},
		source: hub.NewSource(hub.SourceOptions[profile]{
			Kind:          profileKind(),
			Namespaces:    opts.Namespaces,
			LabelSelector: opts.LabelSelector,
			View:          func(u *unstructured.Unstructured) (profile, bool) { return viewProfile(u), true },
			Members:       func(p profile) []string { return []string{p.reference.Namespace + "/" + p.reference.Name} },
		}),
	}
	if len(opts.Providers) > 0 {
		p.providers = &providers{config: access.Config{Providers: opts.Providers}, policy: opts.Policy}
	}
	if opts.Consumer != "" {
		p.secrets = newSecrets(opts)
	}
	return p
}

func (p *profiles) watchers() []hub.Watcher {
	watchers := []hub.Watcher{p.source}
	if p.secrets != nil {
		watchers = append(watchers, p.secrets.watchers()...)
	}
	return watchers
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
			p.forget(member)
			p.engager.Disengage(member, backends.ReasonDeleted)
		}
		return
	}
	p.say(ctx, member, profile)
}

// say says what is true of the member that a profile stands for.
func (p *profiles) say(ctx context.Context, member string, profile profile) {
	hold := func(h backends.Hold) {
		h.Info, h.Source, h.Hints = profile.info, profile.reference, profile.hints
		p.engager.Hold(member, h)
	}
	switch {
	case profile.unreadable:
		hold(backends.Hold{Reason: backends.ReasonInvalidAccess, Rejected: true, Keep: true, Message: formless(&profile)})
		return
	case profile.healthy != metav1.ConditionTrue:
		hold(backends.Hold{Reason: backends.ReasonControlPlaneUnhealthy, Keep: true, Message: unhealthy(profile)})
		return
	}
	spec, h := p.spec(ctx, member, &profile)
	if h != nil {
		hold(*h)
		return
	}
	p.engager.Engage(backends.Cluster{
		Name: member, Connection: spec, Info: profile.info, Source: profile.reference, Hints: profile.hints})
}

// spec returns how a member is reached, or why it is held.
func (p *profiles) spec(ctx context.Context, member string, profile *profile) (connection.Spec, *backends.Hold) {
	var unmatched *backends.Hold
	if p.providers != nil {
		spec, hold := p.providers.spec(member, profile)
		switch {
		case hold == nil:
			return spec, nil
		case p.secrets == nil || hold.Reason != backends.ReasonNoAccessProvider && hold.Reason != backends.ReasonNoMatchingProvider:
			return spec, hold
		}
		unmatched = hold
	}
	secret, ok := p.secrets.forProfile(member)
	if ok {
		return p.kubeconfigs.Spec(ctx, member, secret, secretKey, true)
	}
	missing := p.secrets.missing(member)
	if unmatched != nil {
		missing.Message = unmatched.Message + "; " + missing.Message
	}
	return connection.Spec{}, &missing
}

func (p *profiles) forget(member string) {
	p.kubeconfigs.Forget(member)
	if p.providers != nil {
		p.providers.forget(member)
	}
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

// formless says for people that an object is not what its version promises. It quotes nothing of it.
func formless(p *profile) string {
	return fmt.Sprintf("%s does not have the form of its version, %s", p.reference, p.reference.APIVersion)
}
