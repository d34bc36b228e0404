package capi

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

// Options say which Clusters are members.
type Options struct {
	// Hub is Cluster API's management cluster, for instance GetLocalManager().GetConfig() of a manager. Required.
	// It needs the verbs list and watch for clusters (cluster.x-k8s.io) and secrets, in the namespaces below or in all.
	Hub *rest.Config
	// Namespaces are where the Clusters and their Secrets are. Empty: all namespaces. One that may not be
	// read is reported and harms no other.
	Namespaces []string
	// LabelSelector selects the Clusters, on the server. Empty: all of them.
	LabelSelector string
	// Policy is what kubeconfigs have to conform to. The zero value is strict, as data of others should be treated.
	Policy connection.Policy
}

// Backend is the inventory of Cluster API's Clusters.
type Backend struct {
	opts Options
	hub  *hub.Client
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend, or an error if the options are unusable. It makes no request.
func New(opts Options) (*Backend, error) {
	if slices.Contains(opts.Namespaces, "") {
		return nil, errors.New("capi backend: option Namespaces holds an empty name")
	}
	if _, err := labels.Parse(opts.LabelSelector); err != nil {
		return nil, fmt.Errorf("capi backend: option LabelSelector: %w", err)
	}
	client, err := hub.Connect(opts.Hub)
	if err != nil {
		return nil, fmt.Errorf("capi backend: %w", err)
	}
	return &Backend{opts: opts, hub: client}, nil
}

// Run implements backends.Backend. It returns nil when ctx ends, and never otherwise.
func (b *Backend) Run(ctx context.Context, engager backends.Engager) error {
	clusters := newClusters(b.opts, engager)
	loop := hub.Loop{
		Sources:   []hub.Watcher{clusters.source, clusters.secrets},
		Reconcile: clusters.reconcile,
		Engager:   engager,
	}
	loop.Run(ctx, b.hub)
	return nil
}
