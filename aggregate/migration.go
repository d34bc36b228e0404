package aggregate

import (
	"cmp"
	"fmt"
	"slices"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
)

// Migration tells, for two backends, what would become of each cluster if the second one were to serve what the first one
// does: for instance before Arrange puts it first, or before the first one is removed. It is true of the moment.
type Migration struct {
	From, To string
	// Moves are the clusters that either backend lists, sorted by name.
	Moves []Move
}

// Move tells what would become of one cluster.
type Move struct {
	// Name is the public name under which From lists the cluster; NewName that under which To does. Empty: it does not.
	Name, NewName multicluster.ClusterName
	// Match is how the two were found to be the same cluster.
	Match Match
	// Outcome is what would become of it.
	Outcome Outcome
	// Reason and Message are why, unless it is ready or has moved.
	Reason  backends.Reason
	Message string
}

// Match is how clusters of two backends are found to be the same.
type Match string

// What clusters are matched by.
const (
	// MatchNone: only one backend lists the cluster.
	MatchNone Match = ""
	// MatchName: both list it under the same public name.
	MatchName Match = "Name"
	// MatchIdentity: both lead to a cluster with the same kube-system UID.
	MatchIdentity Match = "Identity"
	// MatchHint: the inventories say that it is the same, by its ID in the same ClusterSet.
	MatchHint Match = "Hint"
)

// Outcome is what would become of a cluster in a migration.
type Outcome string

// Outcomes of a migration.
const (
	// OutcomeReady: it would move without a relist and without being engaged anew.
	OutcomeReady Outcome = "Ready"
	// OutcomeMoved: To serves it already.
	OutcomeMoved Outcome = "Moved"
	// OutcomeRenamed: it would be engaged anew, under another name.
	OutcomeRenamed Outcome = "Renamed"
	// OutcomeReplaced: it would be engaged anew: the name leads to another cluster, or is not known to lead to the same,
	// and To is configured to replace.
	OutcomeReplaced Outcome = "Replaced"
	// OutcomeNotReady: it would not move; the reason says why.
	OutcomeNotReady Outcome = "NotReady"
	// OutcomeOnlyFrom: To does not list it. It would be lost with From.
	OutcomeOnlyFrom Outcome = "OnlyFrom"
	// OutcomeOnlyTo: From does not list it.
	OutcomeOnlyTo Outcome = "OnlyTo"
)

// Count returns how many clusters have one of the outcomes.
func (m Migration) Count(outcomes ...Outcome) (n int) {
	for _, move := range m.Moves {
		if slices.Contains(outcomes, move.Outcome) {
			n++
		}
	}
	return n
}

// Seamless reports whether everything that From lists moves, or has moved, without a relist.
func (m Migration) Seamless() bool {
	return m.Count(OutcomeReady, OutcomeMoved, OutcomeOnlyTo) == len(m.Moves)
}

// Migration reports what would become of the clusters of one backend with another one. Under the same prefix, clusters are matched by their names
// and proved in the background (see Candidate); others by what is known of their identity. The error is ErrBackendNotFound if one of
// the names is not that of a backend.
func (p *Provider) Migration(from, to string) (Migration, error) {
	p.mu.Lock()
	target := p.backends[to]
	var problem error
	if p.backends[from] == nil {
		problem = fmt.Errorf("migration from backend %q: %w", from, ErrBackendNotFound)
	} else if target == nil {
		problem = fmt.Errorf("migration to backend %q: %w", to, ErrBackendNotFound)
	}
	replaces := target != nil && target.replace
	p.mu.Unlock()
	if problem != nil {
		return Migration{}, problem
	}

	theirs := map[multicluster.ClusterName]listing{} // what To lists
	byUID, byHint := map[string]multicluster.ClusterName{}, map[backends.Identity]multicluster.ClusterName{}
	var ours []listing // what From lists
	for _, c := range p.Clusters() {
		if l, lists := listingOf(c, to); lists {
			theirs[c.Name] = l
			if l.candidate.UID != "" {
				byUID[l.candidate.UID] = c.Name
			}
			if hint, ok := l.hint(); ok {
				byHint[hint] = c.Name
			}
		}
		if l, lists := listingOf(c, from); lists {
			ours = append(ours, l)
		}
	}

	m := Migration{From: from, To: to}
	matched := map[multicluster.ClusterName]bool{}
	for _, l := range ours {
		move := Move{Name: l.status.Name, Outcome: OutcomeOnlyFrom, Reason: backends.ReasonNotListed, Message: fmt.Sprintf("backend %s does not list it", to)}
		hint, hinted := l.hint()
		if there, both := theirs[move.Name]; both {
			move = there.move(replaces)
		} else if name := byUID[l.candidate.UID]; l.candidate.UID != "" && name != "" {
			move = Move{Name: move.Name, NewName: name, Match: MatchIdentity, Outcome: OutcomeRenamed}
		} else if name := byHint[hint]; hinted && name != "" {
			move = Move{Name: move.Name, NewName: name, Match: MatchHint, Outcome: OutcomeRenamed}
		}
		matched[move.NewName] = true
		m.Moves = append(m.Moves, move)
	}
	for name := range theirs {
		if !matched[name] {
			m.Moves = append(m.Moves, Move{NewName: name, Outcome: OutcomeOnlyTo})
		}
	}
	slices.SortFunc(m.Moves, func(a, b Move) int { return cmp.Compare(cmp.Or(a.Name, a.NewName), cmp.Or(b.Name, b.NewName)) })
	return m, nil
}

// listing is what one backend says of a name.
type listing struct {
	status    ClusterStatus
	candidate Candidate
}

// listingOf returns what a backend says of a name, if it lists it.
func listingOf(c ClusterStatus, backend string) (listing, bool) {
	for _, candidate := range c.Candidates {
		if candidate.Backend == backend {
			return listing{c, candidate}, true
		}
	}
	if c.Backend == backend && c.State != backends.Draining && len(c.Candidates) == 0 {
		return listing{c, Candidate{Backend: c.Backend, Member: c.Member, State: c.State, Reason: c.Reason, Message: c.Message, UID: c.UID}}, true
	}
	return listing{}, false
}

// hint returns what the inventory says of the cluster's identity, if that means the same in another inventory.
func (l listing) hint() (backends.Identity, bool) {
	h := l.status.Hints
	if l.status.Backend != l.candidate.Backend || h.ClusterID == "" || h.ClusterSet == "" {
		return backends.Identity{}, false
	}
	return backends.Identity{ClusterID: h.ClusterID, ClusterSet: h.ClusterSet}, true
}

// move returns what would become of a name that both backends list, if this one were to serve it.
func (l listing) move(replaces bool) Move {
	c := l.candidate
	m := Move{Name: l.status.Name, NewName: l.status.Name, Match: MatchName, Outcome: OutcomeNotReady, Reason: c.Reason, Message: c.Message}
	switch {
	case l.status.Backend == c.Backend:
		return Move{Name: m.Name, NewName: m.NewName, Match: MatchName, Outcome: OutcomeMoved}
	case c.State != backends.Shadowed:
	case c.Reason == backends.ReasonServedByOther:
		m.Outcome, m.Reason = OutcomeReady, ""
	case replaces && (c.Reason == backends.ReasonIdentityDiffers || c.Reason == backends.ReasonIdentityUnknown || c.Reason == backends.ReasonInsufficientRights):
		m.Outcome = OutcomeReplaced
	case c.Reason == backends.ReasonNotProved:
		m.Message = "it has not been tried yet"
	}
	return m
}
