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

	// DuplicateOf is the first in order of the names that lead to the same cluster; empty if there is none but this, or
	// this is it.
	DuplicateOf multicluster.ClusterName
	// Candidates are all the backends that list the name, in their order; nil if there is only one.
	Candidates []Candidate

	// Info, Source and Hints are what the inventory says.
	Info   backends.Info
	Source backends.ObjectReference
	Hints  backends.Identity
}

// Candidate tells how one of several backends stands that list the same name.
type Candidate struct {
	// Backend lists the cluster as Member.
	Backend, Member string
	// State is the name's own for the backend that serves it. For another one it is Shadowed if it could be engaged,
	// with ServedByOther as the reason if the name could move to it without a relist; otherwise Pending, Rejected,
	// Connecting or Disconnected.
	State  backends.State
	Reason backends.Reason
	// Message explains the reason to a person.
	Message string
	// UID is the cluster's kube-system UID as this backend's connection has shown it; Proved is when that was last. Both are
	// zero before.
	UID    string
	Proved time.Time
}

// Ready reports whether the cluster is engaged and well, its controllers have it, and their informers have synced. The reason
// may have something to say all the same, such as Duplicate or Vanished.
func (c ClusterStatus) Ready() bool {
	return c.State == backends.Engaged && c.Reason != backends.ReasonSyncing && c.Reason != backends.ReasonStandby
}

func clusterStatus(name string, s engagement.Status) ClusterStatus {
	var candidates []Candidate
	for _, c := range s.Candidates {
		candidates = append(candidates, Candidate{c.Source, c.Member, c.State, c.Reason, c.Message, c.UID, c.Proved})
	}
	return ClusterStatus{
		DuplicateOf: multicluster.ClusterName(s.First), Candidates: candidates,
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

// Backends returns the status of every backend, in their order of precedence.
func (p *Provider) Backends() []BackendStatus {
	p.mu.Lock()
	all := p.inOrder()
	p.mu.Unlock()
	list := make([]BackendStatus, 0, len(all))
	for _, s := range all {
		list = append(list, s.status())
	}
	return list
}

func (s *supervised) status() BackendStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := BackendStatus{s.name, s.prefix, s.health, s.synced, len(s.members)}
	if message := s.guard.message(); message != "" {
		if b.Health.Message != "" {
			message += "; " + b.Health.Message
		}
		b.Health = backends.Health{Reason: backends.ReasonVanished, Message: message}
	}
	return b
}
