package aggregate

import (
	"cmp"
	"slices"
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/engagement"
)

// ClusterStatus tells how one cluster of the fleet is doing. It holds no secret.
type ClusterStatus struct {
	// Name is the public name; Member is what the backend calls the cluster.
	Name    multicluster.ClusterName
	Backend string
	Member  string

	State  backends.State
	Reason backends.Reason
	// Message explains the reason to a person; empty if there is nothing to explain.
	Message string
	// Since is when State was entered.
	Since time.Time
	// Attempt counts the failed attempts to connect in a row; NextTry is when the next one starts. Both are
	// zero when nothing is being retried.
	Attempt int
	NextTry time.Time

	// Version, UID and User are what the cluster says of itself: its Kubernetes version, its kube-system
	// namespace's UID, and who the credential is. Empty before the first connection, or where it does not say.
	Version, UID, User string

	// Info, Source and Hints are what the inventory says.
	Info   backends.Info
	Source backends.ObjectReference
	Hints  backends.Identity
}

func clusterStatus(name string, s engagement.Status) ClusterStatus {
	return ClusterStatus{
		Name: multicluster.ClusterName(name), Backend: s.Source, Member: s.Cluster.Name,
		State: s.State, Reason: s.Reason, Message: s.Message, Since: s.Since, Attempt: s.Attempt, NextTry: s.NextTry,
		Version: s.Version, UID: s.UID, User: s.User,
		Info: s.Cluster.Info, Source: s.Cluster.Source, Hints: s.Cluster.Hints,
	}
}

// Clusters returns the status of every cluster that a backend lists, or that is still draining, sorted by name.
func (p *Provider) Clusters() []ClusterStatus {
	all := p.engine.Statuses()
	list := make([]ClusterStatus, 0, len(all))
	for name, s := range all {
		list = append(list, clusterStatus(name, s))
	}
	slices.SortFunc(list, func(a, b ClusterStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// BackendStatus tells how one backend is doing.
type BackendStatus struct {
	Name, Prefix string
	// Health is zero when all is well.
	Health backends.Health
	// Synced says that the backend has reported everything that it lists since it was last started.
	Synced bool
	// Members is how many clusters it lists.
	Members int
}

// Backends returns the status of every backend, in the order they were added.
func (p *Provider) Backends() []BackendStatus {
	p.mu.Lock()
	all := make([]*supervised, 0, len(p.backends))
	for _, s := range p.backends {
		all = append(all, s)
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b *supervised) int { return cmp.Compare(a.source.Rank, b.source.Rank) })
	list := make([]BackendStatus, 0, len(all))
	for _, s := range all {
		s.mu.Lock()
		list = append(list, BackendStatus{s.name, s.prefix, s.health, s.synced, len(s.members)})
		s.mu.Unlock()
	}
	return list
}
