package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// Options say which ClusterProfiles are members, and how they are reached.
type Options struct {
	// Hub is the API server that holds the ClusterProfiles, for instance GetLocalManager().GetConfig() of a manager.
	// Required. It needs the verbs list and watch for clusterprofiles (multicluster.x-k8s.io) and secrets, in the
	// namespaces below or in all, and for namespaces if Namespaces is empty.
	Hub *rest.Config
	// Namespaces are where the ClusterProfiles are. Empty: all namespaces. One that may not be read is
	// reported and harms no other.
	Namespaces []string
	// LabelSelector selects the ClusterProfiles, on the server. Empty: all of them.
	LabelSelector string
	// Consumer is the name under which Secrets are meant for this program. Required, so far, because Secrets
	// are the only access.
	Consumer string
	// ConsumerNamespaces are the namespaces whose Secrets are all meant for Consumer, besides those in Namespaces.
	// With them, no Namespace object is read for its label, so rights in single namespaces suffice. Only of use where
	// Namespaces is set: otherwise the Secrets of all namespaces are seen, and the namespaces' labels decide.
	ConsumerNamespaces []string
	// Policy is what kubeconfigs have to conform to. The zero value is strict, as data of others should be treated.
	Policy connection.Policy
}

func (o Options) validate() error {
	if slices.Contains(o.Namespaces, "") || slices.Contains(o.ConsumerNamespaces, "") {
		return errors.New("Namespaces or ConsumerNamespaces holds an empty name")
	}
	if len(o.ConsumerNamespaces) > 0 && len(o.Namespaces) == 0 {
		return errors.New("ConsumerNamespaces is set without Namespaces")
	}
	if _, err := labels.Parse(o.LabelSelector); err != nil {
		return fmt.Errorf("LabelSelector: %w", err)
	}
	if o.Consumer == "" {
		return errors.New("Consumer is empty")
	}
	if _, err := labels.ValidatedSelectorFromSet(labels.Set{consumerLabel: o.Consumer}); err != nil {
		return fmt.Errorf("Consumer: %w", err)
	}
	return nil
}

// Backend is the inventory of ClusterProfiles.
type Backend struct {
	opts Options
	hub  *hub.Client
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend, or an error if the options are unusable. It makes no request.
func New(opts Options) (*Backend, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("inventory backend: %w", err)
	}
	client, err := hub.Connect(opts.Hub)
	if err != nil {
		return nil, fmt.Errorf("inventory backend: %w", err)
	}
	return &Backend{opts: opts, hub: client}, nil
}

// Run implements backends.Backend. It returns nil when ctx ends, and never otherwise.
func (b *Backend) Run(ctx context.Context, engager backends.Engager) error {
	profiles := newProfiles(b.opts, engager)
	loop := hub.Loop{
		Sources:   append(profiles.secrets.watchers(), profiles.source),
		Reconcile: profiles.reconcile,
		Engager:   engager,
	}
	loop.Run(ctx, b.hub)
	return nil
}
