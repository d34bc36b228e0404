package engagement

import (
	"context"
	"slices"
	"sync"
)

// turns bounds how many things run at once. Those that wait are let in by turns, one of each source, and of a source in
// the order in which they came: a source that has a thousand waiting does not delay another one's few.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{} // by source, never empty
	order   []string                   // the sources that have something waiting, the next one first
}

func newTurns(n int) *turns { return &turns{free: n, waiting: map[string][]chan struct{}{}} }

// enter waits for a turn of the source until ctx ends.
func (t *turns) enter(ctx context.Context, source string) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if len(t.waiting[source]) == 0 {
		t.order = append(t.order, source)
	}
	t.waiting[source] = append(t.waiting[source], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting[source], turn)
	if i >= 0 {
		t.drop(source, i)
	}
	t.mu.Unlock()
	if i < 0 { // its turn came at the same time
		t.leave()
	}
	return context.Cause(ctx)
}

// leave ends a turn, and begins the next one.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	source := t.order[0]
	close(t.waiting[source][0])
	t.drop(source, 0)
	if len(t.waiting[source]) > 0 { // to the end of the line
		t.order = append(t.order[1:], source)
	}
}

// drop takes one that waits out of the line. The caller holds mu.
func (t *turns) drop(source string, i int) {
	t.waiting[source] = slices.Delete(t.waiting[source], i, i+1)
	if len(t.waiting[source]) == 0 {
		delete(t.waiting, source)
		t.order = slices.DeleteFunc(t.order, func(s string) bool { return s == source })
	}
}
