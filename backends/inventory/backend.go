package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// Options say which ClusterProfiles are members, and how they are reached.
type Options struct {
	// Hub is the API server that holds the ClusterProfiles, for instance GetLocalManager().GetConfig() of a manager.
	// Required. It needs the verbs list and watch for clusterprofiles (multicluster.x-k8s.io), in the namespaces below
	// or in all; with Consumer also for secrets, and for namespaces if Namespaces is empty.
	Hub *rest.Config
	// Namespaces are where the ClusterProfiles are. Empty: all namespaces. One that may not be read is
	// reported and harms no other.
	Namespaces []string
	// LabelSelector selects the ClusterProfiles, on the server. Empty: all of them.
	LabelSelector string
	// ClusterManagers are the managers whose profiles are members: the values of spec.clusterManager.name. Empty: all.
	ClusterManagers []string
	// ClusterSets are the sets whose profiles are members. A profile's set is its property clusterset.k8s.io, or else its
	// label multicluster.x-k8s.io/clusterset or clusterset.multicluster.x-k8s.io. Empty: all.
	ClusterSets []string
	// Placement makes members only of profiles that a scheduler chose. Nil: of all. It needs the verbs list and
	// watch for placementdecisions (multicluster.x-k8s.io).
	Placement *Placement
	// Readiness says when a profile's cluster is engaged, and what happens when it is ready no more.
	Readiness Readiness
	// Providers are the access providers that are used where a profile lists them, the preferred one first: credential
	// plugins on this machine, configured as KEP-5339 says. Empty: none.
	Providers []access.Provider
	// ProviderFile is a file of access providers in the form of KEP-5339, instead of Providers. It is read anew when it
	// changes. While it is broken or missing, what it said last stays in force, and the backend's health says
	// ProviderFileInvalid. Empty: none.
	ProviderFile string
	// TokenSecrets lets the tokens for some of the access providers be read from Secrets instead of by plugins. Nil: none.
	// Only with Providers or ProviderFile.
	TokenSecrets *TokenSecrets
	// Consumer is the name under which Secrets are meant for this program. They are used for profiles that list none of
	// Providers. Empty: no Secret is read. One of Providers, ProviderFile and Consumer is required.
	Consumer string
	// ConsumerNamespaces are the namespaces whose Secrets are all meant for Consumer, besides those in Namespaces.
	// With them, no Namespace object is read for its label, so rights in single namespaces suffice. Only of use where
	// Namespaces is set: otherwise the Secrets of all namespaces are seen, and the namespaces' labels decide.
	ConsumerNamespaces []string
	// Policy is what connections have to conform to. The zero value is strict, as data of others should be treated.
	Policy connection.Policy
}

func (o Options) validate() error {
	if slices.Contains(o.Namespaces, "") || slices.Contains(o.ConsumerNamespaces, "") {
		return errors.New("option Namespaces or ConsumerNamespaces holds an empty name")
	}
	if len(o.ConsumerNamespaces) > 0 && len(o.Namespaces) == 0 {
		return errors.New("option ConsumerNamespaces is set without Namespaces")
	}
	if _, err := labels.Parse(o.LabelSelector); err != nil {
		return fmt.Errorf("option LabelSelector: %w", err)
	}
	if o.Consumer == "" && len(o.Providers) == 0 && o.ProviderFile == "" {
		return errors.New("none of the options Providers, ProviderFile and Consumer is set")
	}
	if len(o.Providers) > 0 && o.ProviderFile != "" {
		return errors.New("options Providers and ProviderFile are both set")
	}
	if err := o.Placement.validate(); err != nil {
		return err
	}
	if err := o.TokenSecrets.validate(); err != nil {
		return err
	}
	if o.TokenSecrets != nil && len(o.Providers) == 0 && o.ProviderFile == "" {
		return errors.New("option TokenSecrets is set without Providers or ProviderFile")
	}
	if err := o.Readiness.validate(); err != nil {
		return err
	}
	if err := validateProviders(o.Providers); err != nil {
		return fmt.Errorf("option Providers: %w", err)
	}
	if _, err := labels.ValidatedSelectorFromSet(labels.Set{consumerLabel: o.Consumer}); err != nil {
		return fmt.Errorf("option Consumer: %w", err)
	}
	return nil
}

// Backend is the inventory of ClusterProfiles.
type Backend struct {
	opts   Options
	hub    *hub.Client
	memory *memory
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
	return &Backend{opts: opts, hub: client, memory: newMemory(opts)}, nil
}

// Run implements backends.Backend. It returns nil when ctx ends, and never otherwise.
func (b *Backend) Run(ctx context.Context, engager backends.Engager) error {
	profiles := newProfiles(b.opts, b.memory, engager)
	loop := hub.Loop{
		Sources:   profiles.watchers(),
		Reconcile: profiles.reconcile,
		Engager:   engager,
	}
	loop.Run(ctx, b.hub)
	return nil
}
