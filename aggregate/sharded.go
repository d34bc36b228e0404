package aggregate

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/internal/engagement"
)

// Sharded returns a runnable for a manager with multicluster-runtime's sharded coordinator, which is experimental:
//
//	err := mgr.Add(fleet.Sharded())
//
// As of v0.24.1 the coordinator starts clusters under the context of whichever cluster it was told of last. When that cluster goes, the
// others are stopped with it, and never started again. With this runnable, such clusters are handed to the coordinator anew.
//
// The names of its leases do not tell all clusters apart: "a-b/c" and "a/b-c" share one, and so may not be served by two
// processes at the same time. Give backends prefixes without hyphens, or members names that cannot be mistaken so.
func (p *Provider) Sharded() mcmanager.Runnable { return sharded{p} }

type sharded struct{ p *Provider }

// Start implements manager.Runnable.
func (sharded) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage implements multicluster.Aware.
func (s sharded) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	// What follows takes note only: it does not outlive the call by more than a moment.
	context.AfterFunc(ctx, func() {
		var other *engagement.TakenBackError
		if errors.As(context.Cause(ctx), &other) && other.Name != name {
			s.p.engine.HandOverAgain(name)
		}
	})
	return nil
}
