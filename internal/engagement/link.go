package engagement

import (
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// Link is a connection to a cluster: who says it, what it is, and what is known of what it leads to.
type Link struct {
	Source     string
	Connection connection.Spec
	Running    cluster.Cluster // see backends.Cluster
	// Hints are what the inventory says of the cluster's identity.
	Hints backends.Identity
	// Facts are what the cluster says; zero before it was asked.
	Facts Facts
}

// leadsAs reports whether the link is what the cluster's source says of how to reach it.
func (l Link) leadsAs(c backends.Cluster) bool {
	return c.SameAccess(backends.Cluster{Connection: l.Connection, Running: l.Running})
}

// CanSwap reports whether a running engagement may go on upon another link, caches and all: it leads to the same
// cluster, and its user may watch what is being watched.
func CanSwap(running, next Link) bool { return judge(running, next) == verdictReady }

// verdict is what would become of an engagement that goes on upon another link.
type verdict uint8

const (
	verdictNone    verdict = iota // not known
	verdictReady                  // it goes on, caches and all
	verdictOther                  // another cluster
	verdictUnknown                // perhaps another cluster
	verdictForeign                // one of the two clusters is run by somebody else
	verdictRights                 // the same cluster, but the user may not watch what is being watched
)

func judge(running, next Link) verdict {
	same, known := sameCluster(running, next)
	switch {
	case running.Running != nil || next.Running != nil:
		return verdictForeign
	case known && !same:
		return verdictOther
	// An unchanged endpoint speaks for the same cluster; about a changed one nothing is guessed.
	case !known && !running.Connection.Endpoint.Equal(next.Connection.Endpoint):
		return verdictUnknown
	case !sameRights(running.Facts, next.Facts) && !next.Facts.MayWatch:
		return verdictRights
	default:
		return verdictReady
	}
}

// leadsToSame reports whether the verdict is that both links lead to the same cluster.
func (v verdict) leadsToSame() bool { return v == verdictReady || v == verdictRights }

// sameRights reports whether both users are known, and the same.
func sameRights(a, b Facts) bool { return a.Rights != "" && a.Rights == b.Rights }

// sameCluster reports whether both links lead to the same cluster, if that can be known: by the clusters' own
// word, else by what the inventories say. Member IDs are unique within one hub only (KEP-4322), cluster IDs within a
// ClusterSet (KEP-2149).
func sameCluster(a, b Link) (same, known bool) {
	switch {
	case a.Facts.UID != "" && b.Facts.UID != "":
		return a.Facts.UID == b.Facts.UID, true
	case a.Hints.ClusterID != "" && b.Hints.ClusterID != "" && a.Hints.ClusterSet != "" && a.Hints.ClusterSet == b.Hints.ClusterSet:
		return a.Hints.ClusterID == b.Hints.ClusterID, true
	case a.Source == b.Source && a.Hints.MemberID != "" && b.Hints.MemberID != "":
		return a.Hints.MemberID == b.Hints.MemberID, true
	default:
		return false, false
	}
}
