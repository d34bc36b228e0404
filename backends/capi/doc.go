// Package capi is the backend for clusters that Cluster API manages.
//
// Every Cluster on the hub is a member, named "namespace/name". It is engaged once its control plane is
// initialized and its kubeconfig Secret, "<cluster>-kubeconfig" unless configured otherwise, is there; both are
// watched, so their order does not matter. It is disengaged when the Cluster is being deleted, or when that is done;
// a deletion by "clusterctl move" is a handover to another hub, though, and the cluster is kept for a grace period.
// Clusters are read at v1beta2 or v1beta1, whichever the hub serves at the time.
//
// Everything else keeps a running engagement as it is: a Cluster that is paused (nothing new is engaged then), one
// whose status is empty for a while, as after "clusterctl move", and one whose Secret is missing or damaged. The Cluster
// says whether the cluster belongs to the fleet, and the Secret only how to reach it; a credential that is really
// withdrawn fails at the cluster itself. A kubeconfig that policy refuses ends the engagement, though.
package capi
