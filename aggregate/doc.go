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
package aggregate
