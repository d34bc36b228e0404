// Package inventory is the backend for clusters that are listed as ClusterProfiles of the Cluster Inventory API.
//
// Every ClusterProfile that the options select is a member, named "namespace/name"; with a placement, every one that a
// scheduler chose. It is engaged once its conditions say that it is ready and there is access to it: an access provider
// that it lists and that is configured here (KEP-5339), or else a Secret for this consumer (KEP-4322's push model).
// Only what concerns access and readiness matters; the heartbeats that inventories write all the time change nothing.
//
// # Secrets
//
// A Secret belongs to the profile that its label x-k8s.io/cluster-profile names, holds a kubeconfig under the key
// Config, and is for the consumer that the label x-k8s.io/cluster-inventory-consumer names. There are two readings of
// where that label is, and both are honoured:
//
//   - As KEP-4322 says, on the Secret's namespace. The profile's namespace is the Secret's label
//     x-k8s.io/cluster-profile-namespace, or "default".
//   - As multicluster-runtime's provider wants it, on the Secret, which then lies in its profile's namespace. It
//     cannot speak for a profile in another namespace: whoever may write Secrets in one namespace has no say in others.
//
// Where several Secrets claim one profile, the oldest counts.
//
// # What ends an engagement
//
// The profile's deletion, selection by the options or by a scheduler that ends, and a connection that policy refuses;
// unreadiness only after the time that is configured for it. Otherwise, a control plane that is reported unhealthy, and access
// that is missing or damaged, do not: the profile says whether the cluster belongs to the fleet, readiness is as good as
// the last heartbeat, and managers write access and status in several steps, taking them away for moments. A
// credential that is really withdrawn fails at the cluster itself.
package inventory
