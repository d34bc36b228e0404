package capi

import (
	"sync"
	"time"
)

// deleteForMoveAnnotation is what "clusterctl move" sets on an object before it deletes it: the object lives on in the
// hub that it was moved to. Cluster API's clusterctl package has the constant, and much else.
const deleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

func (v *cluster) moving() bool {
	_, annotated := v.Annotations[deleteForMoveAnnotation]
	return annotated
}

// moves remembers the Clusters that were last seen on their way to another hub: annotation, deletion and end of a Cluster
// may follow each other so closely that nothing else sees it with the annotation.
type moves struct {
	mu       sync.Mutex
	byMember map[string]*move
}

// move is a Cluster as it was last seen.
type move struct {
	cluster cluster
	until   time.Time // the end of the grace period; zero while the object exists
}

func newMoves() *moves { return &moves{byMember: map[string]*move{}} }

// note takes note of a Cluster that exists.
func (m *moves) note(cl cluster) {
	member := cl.Namespace + "/" + cl.Name
	m.mu.Lock()
	defer m.mu.Unlock()
	if cl.moving() {
		m.byMember[member] = &move{cluster: cl}
	} else {
		delete(m.byMember, member)
	}
}

// gone returns how a Cluster that exists no longer was last seen, and until when it is to be kept; false if it was not
// moved, or long ago.
func (m *moves) gone(member string, grace time.Duration) (cluster, time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	move := m.byMember[member]
	if move == nil {
		return cluster{}, time.Time{}, false
	}
	now := time.Now()
	if move.until.IsZero() {
		move.until = now.Add(grace)
	}
	return move.cluster, move.until, now.Before(move.until)
}

func (m *moves) forget(member string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byMember, member)
}
