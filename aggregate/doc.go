// Package aggregate is one provider for a mixed fleet.
//
// A [Provider] is a multicluster-runtime provider made of backends: inventories of clusters that are added and
// removed at any time. It names each cluster prefix/member by the backend that lists it, engages what can be
// engaged, keeps it healthy, and re-engages it when its access changes. A backend that fails is started again
// and does no harm to the others; a cluster that does not answer does no harm to the others either.
//
//	fleet, err := aggregate.New(aggregate.Options{})
//	…
//	err = fleet.Add("capi", capiBackend, aggregate.BackendOptions{})
//	…
//	mgr, err := mcmanager.New(hubConfig, fleet, mcmanager.Options{})
//
// The manager starts the provider itself.
//
// # One name, several backends
//
// Backends under one prefix are an overlay. The first in their order ([Provider.Arrange]) whose connection works serves a name; the others are
// Shadowed, and proved in the background. The name moves to another one when the order changes, when the backend that serves it withdraws it,
// and when its credential dies: by a swap, where both lead to the same cluster, and not at all where they do not, unless
// BackendOptions.Replace says so. [Provider.Migration] tells beforehand. See [ClusterStatus.Candidates].
//
// # Selection
//
// [Provider.View], [Provider.FromBackend] and [Provider.WithLabels] give a controller a part of the fleet. A cluster whose part changes is taken
// back from all controllers and handed to them anew, upon the same caches.
//
// # Several processes
//
// Under leader election, [Provider.Standby] keeps those connected that do not lead. Under multicluster-runtime's sharded coordinator,
// [Provider.Sharded] mends what one cluster's end does to others.
package aggregate
