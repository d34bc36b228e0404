package aggregate

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// view is a part of a provider's clusters. Two views of one part are equal.
type view struct {
	p    *Provider
	name string
}

// View returns the part of the fleet that belongs to a name: the clusters published under it as a prefix, and those that
// a backend of that name serves, whatever their prefix. It is for controllers that are to work in these clusters only:
//
//	mcbuilder.ControllerManagedBy(mgr).
//		For(&corev1.ConfigMap{}, mcbuilder.WithClustersFromProvider(ctx, fleet.View("capi")))
//
// The option concerns the one For, Owns or Watches that it is given to. Clusters keep their public names. A view may be made
// before its backend is added. It runs nothing, so it is not a provider to give to a manager.
//
// Get's errors are the Provider's, and multicluster.ErrClusterNotFound for a cluster of another part; it takes no lock.
// IndexField adds the index to every cluster of the fleet, as the Provider's does, so two views cannot have different
// indexes for one type and field.
//
// When a cluster moves from one backend to another, so that it leaves a view or comes into one, it is taken back from the
// controllers and handed to them anew, caches and all, as with FromBackend. A move under one prefix does not concern the
// view of the prefix.
func (p *Provider) View(name string) multicluster.Provider {
	v := view{p, name}
	p.filters.register(v.condition())
	return v
}

// Get implements multicluster.Provider.
func (v view) Get(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if !v.p.meets(name, v.condition()) {
		return nil, multicluster.ErrClusterNotFound
	}
	return v.p.Get(ctx, name)
}

// IndexField implements multicluster.Provider.
func (v view) IndexField(ctx context.Context, obj client.Object, field string, extractValue client.IndexerFunc) error {
	return v.p.IndexField(ctx, obj, field, extractValue)
}

func (v view) condition() condition {
	return condition{"view " + v.name, func(name multicluster.ClusterName, backend string, _ labels.Set) bool {
		prefix, _, ok := ParseName(name, v.p.opts.Separator)
		return backend == v.name || ok && prefix == v.name
	}}
}
