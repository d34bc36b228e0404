package inventory

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

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
	providers   *providers  // nil if none is configured
	secrets     *secrets    // nil if no Secret is read
	file        hub.Watcher // nil if the providers are in no file
	kubeconfigs hub.Kubeconfigs
	placements  *placements // nil if no scheduler chooses
	conditions  []Condition // for readiness
	memory      *memory
	alarms      *hub.Alarms
}

// memory is what one run of a backend leaves to the next.
type memory struct {
	choices choices
	unready patience
	file    *providerFile
}

func newMemory(opts Options) *memory {
	m := &memory{file: newProviderFile(), choices: choices{before: map[string]bool{}}, unready: patience{limit: opts.Readiness.DisengageAfter}}
	if opts.Placement != nil {
		m.choices.absent.limit = cmp.Or(opts.Placement.Grace, defaultGrace)
	}
	return m
}

func newProfiles(opts Options, remembered *memory, engager backends.Engager) *profiles {
	conditions := opts.Readiness.conditions()
	p := &profiles{
		conditions:  conditions,
		memory:      remembered,
		alarms:      hub.NewAlarms(),
		engager:     engager,
		kubeconfigs: hub.Kubeconfigs{Policy: opts.Policy},
		source: hub.NewSource(hub.SourceOptions[profile]{
			Kind:          profileKind(),
			Namespaces:    opts.Namespaces,
			LabelSelector: opts.LabelSelector,
			View: func(u *unstructured.Unstructured) (profile, bool) {
				view := viewProfile(u, conditions)
				if !view.unreadable && !opts.selects(&view) {
					view = profile{reference: view.reference, deselected: true}
				}
				return view, true
			},
			Members: func(p profile) []string { return []string{p.reference.Namespace + "/" + p.reference.Name} },
		}),
	}
	if len(opts.Providers) > 0 {
		config := access.New(opts.Providers)
		p.providers = &providers{config: func() *access.Config { return config }, policy: opts.Policy}
	}
	if opts.ProviderFile != "" {
		p.providers = &providers{config: remembered.file.current, policy: opts.Policy}
		p.file = remembered.file.watcher(opts.ProviderFile, p.source.Members)
	}
	if opts.TokenSecrets != nil {
		p.providers.tokens = newTokens(*opts.TokenSecrets)
	}
	if opts.Consumer != "" {
		p.secrets = newSecrets(opts)
	}
	if opts.Placement != nil {
		p.placements = newPlacements(opts, &remembered.choices)
	}
	return p
}

func (p *profiles) watchers() []hub.Watcher {
	watchers := []hub.Watcher{p.source, p.alarms}
	if p.placements != nil {
		watchers = append(watchers, p.placements.source)
	}
	if p.providers != nil && p.providers.tokens != nil {
		watchers = append(watchers, p.providers.tokens.source)
	}
	if p.file != nil {
		watchers = append(watchers, p.file)
	}
	if p.secrets != nil {
		watchers = append(watchers, p.secrets.watchers()...)
	}
	return watchers
}

// reconcile says what is true of a member, or of all members that a namespace's Secrets may concern.
func (p *profiles) reconcile(ctx context.Context, member string) {
	if cluster, ok := strings.CutPrefix(member, tokenPrefix); ok {
		for _, member := range p.providers.tokens.membersOf(cluster) {
			p.reconcile(ctx, member)
		}
		return
	}
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
	switch {
	case ok && profile.deselected:
		p.leave(member, backends.ReasonDeselected)
	case ok:
		p.alarms.Set(member, p.say(ctx, member, &profile, time.Now()))
	case p.source.Unlisted(namespace) == nil:
		p.leave(member, backends.ReasonDeleted)
	}
}

// say says what is true now of the member that a profile stands for, and returns when that may change by itself.
func (p *profiles) say(ctx context.Context, member string, profile *profile, now time.Time) (again time.Time) {
	hold := func(h backends.Hold) {
		h.Info, h.Source, h.Hints = profile.info, profile.reference, profile.hints
		p.engager.Hold(member, h)
	}
	if p.placements != nil {
		chosen, giveUp, unknown := p.placements.chosen(member, now)
		switch {
		case unknown != nil:
			hold(backends.Hold{Reason: unknown.Reason, Message: unknown.Message, Keep: true})
			return time.Time{}
		case !chosen:
			p.leave(member, backends.ReasonDeselected)
			return time.Time{}
		}
		again = giveUp
	}
	if profile.unreadable {
		hold(backends.Hold{Reason: backends.ReasonInvalidAccess, Rejected: true, Keep: true, Message: formless(profile)})
		return again
	}
	if h := unready(p.conditions, profile); h != nil {
		tooLong, giveUp := p.memory.unready.lacks(member, now, p.source.Trouble(profile.reference.Namespace) != nil)
		h.Keep = !tooLong
		hold(*h)
		return earlier(again, giveUp)
	}
	p.memory.unready.has(member)
	spec, h := p.spec(ctx, member, profile)
	if h != nil {
		hold(*h)
		return again
	}
	p.engager.Engage(backends.Cluster{
		Name: member, Connection: spec, Info: profile.info, Source: profile.reference, Hints: profile.hints})
	return again
}

// earlier returns the earlier of two times, where the zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
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

// leave says that a member is none any more, and forgets it.
func (p *profiles) leave(member string, reason backends.Reason) {
	p.alarms.Set(member, time.Time{})
	p.memory.unready.has(member)
	if p.placements != nil {
		p.placements.forget(member)
	}
	p.kubeconfigs.Forget(member)
	if p.providers != nil {
		p.providers.forget(member)
	}
	p.engager.Disengage(member, reason)
}

// formless says for people that an object is not what its version promises. It quotes nothing of it.
func formless(p *profile) string {
	return fmt.Sprintf("%s does not have the form of its version, %s", p.reference, p.reference.APIVersion)
}
