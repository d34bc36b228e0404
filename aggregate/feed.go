package aggregate

import (
	"context"
	"iter"
	"sync"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Change is a cluster's new status.
type Change struct {
	ClusterStatus
	// Gone says that the cluster was forgotten; the status is its last.
	Gone bool
}

// Subscribe yields the present status of every cluster, and then each change until ctx ends. Changes are levels:
// one that is followed by another before the loop gets to it may be left out, the last one never is. A slow loop
// delays nobody.
func (p *Provider) Subscribe(ctx context.Context) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		s := &subscriber{pending: map[multicluster.ClusterName]Change{}, wake: make(chan struct{}, 1)}
		p.feed.add(s)
		defer p.feed.remove(s)
		for _, c := range p.Clusters() {
			s.notePresent(Change{ClusterStatus: c})
		}
		for {
			for _, c := range s.take() {
				if ctx.Err() != nil || !yield(c) {
					return
				}
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// feed passes changes on to subscribers. The zero value is ready.
type feed struct {
	mu          sync.Mutex
	subscribers map[*subscriber]bool
}

func (f *feed) add(s *subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subscribers == nil {
		f.subscribers = map[*subscriber]bool{}
	}
	f.subscribers[s] = true
}

func (f *feed) remove(s *subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subscribers, s)
}

func (f *feed) publish(c ClusterStatus, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subscribers {
		s.note(Change{c, gone})
	}
}

// subscriber holds the changes that its loop has not got to: the latest of each cluster, in order of arrival.
type subscriber struct {
	mu      sync.Mutex
	pending map[multicluster.ClusterName]Change
	order   []multicluster.ClusterName
	wake    chan struct{}
}

func (s *subscriber) note(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(c)
}

// notePresent notes a status that is older than any change that has come already.
func (s *subscriber) notePresent(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, newer := s.pending[c.Name]; !newer {
		s.set(c)
	}
}

func (s *subscriber) set(c Change) {
	if _, waits := s.pending[c.Name]; !waits {
		s.order = append(s.order, c.Name)
	}
	s.pending[c.Name] = c
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) take() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := make([]Change, 0, len(s.order))
	for _, name := range s.order {
		changes = append(changes, s.pending[name])
	}
	s.order = nil
	clear(s.pending)
	return changes
}
