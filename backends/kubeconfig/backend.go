package kubeconfig

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

const (
	// DefaultLabelSelector selects the Secrets that multicluster-runtime's kubeconfig provider reads.
	DefaultLabelSelector = "sigs.k8s.io/multicluster-runtime-kubeconfig=true"
	// DefaultKey is the key that multicluster-runtime's kubeconfig provider reads.
	DefaultKey = "kubeconfig"
)

// Options say which Secrets are clusters.
type Options struct {
	// Hub is the API server that holds the Secrets, for instance GetLocalManager().GetConfig() of a manager. Required.
	// It needs the verbs list and watch for secrets, in the namespaces below or in all.
	Hub *rest.Config
	// Namespaces are where the Secrets are. Empty: all namespaces. One that may not be read is reported and
	// harms no other.
	Namespaces []string
	// LabelSelector selects the Secrets, on the server. Default: DefaultLabelSelector. Everything that it selects
	// is taken for a cluster.
	LabelSelector string
	// Key is the key of a Secret's data that holds the kubeconfig. Default: DefaultKey.
	Key string
	// Policy is what kubeconfigs have to conform to. The zero value is strict, as data of others should be treated.
	Policy connection.Policy
}

func (o *Options) setDefaults() {
	if o.LabelSelector == "" {
		o.LabelSelector = DefaultLabelSelector
	}
	if o.Key == "" {
		o.Key = DefaultKey
	}
}

// Backend is the inventory of kubeconfigs in Secrets.
type Backend struct {
	opts Options
	hub  *hub.Client
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend, or an error if the options are unusable. It makes no request.
func New(opts Options) (*Backend, error) {
	opts.setDefaults()
	if slices.Contains(opts.Namespaces, "") {
		return nil, errors.New("kubeconfig backend: option Namespaces holds an empty name")
	}
	if _, err := labels.Parse(opts.LabelSelector); err != nil {
		return nil, fmt.Errorf("kubeconfig backend: option LabelSelector: %w", err)
	}
	client, err := hub.Connect(opts.Hub)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig backend: %w", err)
	}
	return &Backend{opts: opts, hub: client}, nil
}

// Run implements backends.Backend. It returns nil when ctx ends, and never otherwise.
func (b *Backend) Run(ctx context.Context, engager backends.Engager) error {
	secrets := newSecrets(b.opts, engager)
	loop := hub.Loop{
		Sources:   []hub.Watcher{secrets.source},
		Reconcile: secrets.reconcile,
		Engager:   engager,
	}
	loop.Run(ctx, b.hub)
	return nil
}
