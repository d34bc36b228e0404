// Package provider makes a backend of any multicluster-runtime provider, so that clusters which Tributary has no inventory
// for can be part of the same fleet, under the same manager and controllers.
//
// The other provider builds and runs its clusters, and Tributary engages them as they are: under its own names, without waiting for
// their caches, watched by probes, and taken back when the other provider ends their context. What rests upon having made the
// connection itself, such a cluster does not have: no policy looks at how it is reached, a changed credential is the other provider's to
// deal with, which as a rule means another cluster and new lists, and in an overlay a name cannot move to it or away from it without
// being engaged anew. It is not asked for its identity, since several of them may be parts of one cluster.
//
//	theirs := mcrnamespace.New(mgr.GetLocalManager())
//	backend, err := provider.New(provider.Options{Provider: theirs})
//	…
//	err = fleet.Add("namespaces", backend, aggregate.BackendOptions{})
package provider
