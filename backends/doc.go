// Package backends is the one interface that every inventory of clusters implements.
//
// A [Backend] watches an inventory (ClusterProfiles, Cluster API Clusters, kubeconfigs, …) and decides
// when each of its clusters is engaged, re-engaged, held or disengaged. It says so to an [Engager],
// in levels rather than edges: every call states what is true now, may be repeated, and the last word counts.
//
// A backend never talks to the clusters it lists. Connecting, probing, engaging and draining belong to
// the engagement behind the Engager, so a dead cluster cannot block an inventory, and an inventory that
// is down cannot disengage a healthy cluster.
//
// Implementations prove themselves with the suite in package backendtest.
package backends
