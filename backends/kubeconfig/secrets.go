package kubeconfig

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// secrets makes members of Secrets, for one run.
type secrets struct {
	opts        Options
	engager     backends.Engager
	source      *hub.Source[hub.Secret]
	kubeconfigs hub.Kubeconfigs
}

func newSecrets(opts Options, engager backends.Engager) *secrets {
	return &secrets{
		opts:        opts,
		engager:     engager,
		kubeconfigs: hub.Kubeconfigs{Policy: opts.Policy},
		source: hub.NewSource(hub.SourceOptions[hub.Secret]{
			Kind:          hub.Secrets(),
			Namespaces:    opts.Namespaces,
			LabelSelector: opts.LabelSelector,
			View:          func(u *unstructured.Unstructured) (hub.Secret, bool) { return hub.ViewSecret(u, opts.Key), true },
			Members:       func(s hub.Secret) []string { return []string{s.Key()} },
		}),
	}
}

// reconcile says what is true of the member that a Secret stands for.
func (s *secrets) reconcile(ctx context.Context, member string) {
	secret, ok := s.source.Get(member)
	if !ok {
		s.gone(member)
		return
	}
	info := backends.Info{Labels: secret.Labels, Annotations: secret.Annotations}
	// A key that was taken out is a decision, like a label that was taken off.
	spec, hold := s.kubeconfigs.Spec(ctx, member, secret, s.opts.Key, false)
	if hold != nil {
		hold.Info, hold.Source = info, secret.Reference
		s.engager.Hold(member, *hold)
		return
	}
	s.engager.Engage(backends.Cluster{Name: member, Connection: spec, Info: info, Source: secret.Reference})
}

// gone disengages a member whose Secret the hub does not show. Whether it was deleted or lost its label is not
// to be seen: a watch with a selector says deleted to both.
func (s *secrets) gone(member string) {
	namespace, _, _ := strings.Cut(member, "/")
	if s.source.Unlisted(namespace) != nil {
		return
	}
	s.kubeconfigs.Forget(member)
	s.engager.Disengage(member, backends.ReasonDeleted)
}
