package capi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// Options say which Clusters are members, and where their kubeconfigs are.
type Options struct {
	// Hub is Cluster API's management cluster, for instance GetLocalManager().GetConfig() of a manager. Required.
	// It needs the verbs list and watch for clusters (cluster.x-k8s.io) and secrets, in the namespaces below or in all;
	// also get for secrets, if Secrets that lack Cluster API's label are to be found.
	Hub *rest.Config
	// Namespaces are where the Clusters and their Secrets are. Empty: all namespaces. One that may not be
	// read is reported and harms no other.
	Namespaces []string
	// LabelSelector selects the Clusters, on the server. Empty: all of them.
	LabelSelector string

	// SecretName is the name of a Cluster's kubeconfig Secret, which is in the Cluster's namespace, with {{cluster}} for
	// the Cluster's name. Default "{{cluster}}-kubeconfig", which is Cluster API's own and, says its contract, not for
	// others. Some providers write one for users: "{{cluster}}-user-kubeconfig" (AWS, GCP),
	// "{{cluster}}-kubeconfig-user" (Azure).
	SecretName string
	// SecretKeys are the keys that may hold the kubeconfig: the first of them that has data does. Default "value".
	// The AWS provider's keys "relative" and "token-file" are refused: one refers to the file that the other is.
	SecretKeys []string
	// Context is the context of the kubeconfig to use. Empty: the current one.
	Context string

	// Select chooses among the Clusters that the label selector matches, for instance by the kind of their infrastructure
	// or by their topology class; one that it no longer chooses is disengaged. It must be quick, and answer the same for
	// equal Clusters. Default: all of them.
	Select func(Cluster) bool
	// Ready tells whether a Cluster may be engaged, as far as its Cluster object tells; a kubeconfig is always needed.
	// An engagement that runs stays when the Cluster is no longer ready. Conditions such as "Available" also
	// depend on the cluster's workers. It must be as Select is. Default: Cluster.ControlPlaneInitialized.
	Ready func(Cluster) bool

	// Deletion says when a Cluster that is being deleted is disengaged. Default: DisengageAtOnce.
	Deletion DeletionPolicy
	// MoveGrace is how long a Cluster that clusterctl moves away is kept after its object has gone from this hub, so
	// that the hub which it is moved to can take over meanwhile. Default 5m.
	MoveGrace time.Duration

	// Policy is what kubeconfigs have to conform to. The zero value is strict, as data of others should be treated.
	Policy connection.Policy
}

// DeletionPolicy says when a Cluster that is being deleted is disengaged.
type DeletionPolicy string

const (
	// DisengageAtOnce disengages a Cluster as soon as its deletion begins.
	DisengageAtOnce DeletionPolicy = "DisengageAtOnce"
	// KeepUntilGone keeps it until its object or its Secret is gone, so that controllers can clean up in the cluster.
	KeepUntilGone DeletionPolicy = "KeepUntilGone"
)

// Defaults of Options.
const (
	DefaultSecretName = clusterPlaceholder + "-kubeconfig"
	DefaultSecretKey  = "value"
	DefaultMoveGrace  = 5 * time.Minute
)

func (o Options) withDefaults() Options {
	o.SecretName = cmp.Or(o.SecretName, DefaultSecretName)
	if len(o.SecretKeys) == 0 {
		o.SecretKeys = []string{DefaultSecretKey}
	}
	if o.Select == nil {
		o.Select = func(Cluster) bool { return true }
	}
	if o.Ready == nil {
		o.Ready = func(c Cluster) bool { return c.ControlPlaneInitialized }
	}
	o.Deletion = cmp.Or(o.Deletion, DisengageAtOnce)
	o.MoveGrace = cmp.Or(o.MoveGrace, DefaultMoveGrace)
	return o
}

func (o Options) validate() error {
	if slices.Contains(o.Namespaces, "") {
		return errors.New("option Namespaces holds an empty name")
	}
	if _, err := labels.Parse(o.LabelSelector); err != nil {
		return fmt.Errorf("option LabelSelector: %w", err)
	}
	if o.Deletion != DisengageAtOnce && o.Deletion != KeepUntilGone {
		return fmt.Errorf("option Deletion is %q, which is no policy", o.Deletion)
	}
	if o.MoveGrace < 0 {
		return errors.New("option MoveGrace is negative")
	}
	for _, key := range o.SecretKeys {
		switch key {
		case "":
			return errors.New("option SecretKeys holds an empty key")
		case "relative", "token-file":
			return fmt.Errorf("option SecretKeys: %s holds no kubeconfig that can be used by itself", key)
		}
	}
	return nil
}

// Backend is the inventory of Cluster API's Clusters.
type Backend struct {
	opts       Options
	secretName secretName
	hub        *hub.Client
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend, or an error if the options are unusable. It makes no request.
func New(opts Options) (*Backend, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("capi backend: %w", err)
	}
	name, err := parseSecretName(opts.SecretName)
	if err != nil {
		return nil, fmt.Errorf("capi backend: option SecretName: %w", err)
	}
	client, err := hub.Connect(opts.Hub)
	if err != nil {
		return nil, fmt.Errorf("capi backend: %w", err)
	}
	return &Backend{opts: opts, secretName: name, hub: client}, nil
}

// Run implements backends.Backend. It returns nil when ctx ends, and never otherwise.
func (b *Backend) Run(ctx context.Context, engager backends.Engager) error {
	clusters := newClusters(b.opts, b.secretName, engager)
	loop := hub.Loop{
		Sources:   clusters.watchers(),
		Reconcile: clusters.reconcile,
		Engager:   engager,
	}
	loop.Run(ctx, b.hub)
	return nil
}
