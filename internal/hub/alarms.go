package hub

import (
	"context"
	"sync"
	"time"
)

// Alarms is a Watcher that has members reconciled again at a given time. Its methods may be called concurrently.
type Alarms struct {
	mu  sync.Mutex
	due map[string]time.Time // by member

	changed chan struct{} // holds one element if due may have changed
}

// NewAlarms returns alarms of which none is set.
func NewAlarms() *Alarms {
	return &Alarms{due: map[string]time.Time{}, changed: make(chan struct{}, 1)}
}

// Set has a member reconciled once at the time given, instead of at the one given before. The zero time: not at all.
func (a *Alarms) Set(member string, at time.Time) {
	a.mu.Lock()
	before, had := a.due[member]
	if at.IsZero() {
		delete(a.due, member)
	} else {
		a.due[member] = at
	}
	a.mu.Unlock()
	if !at.IsZero() && (!had || !before.Equal(at)) {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// ring removes the members whose time has come and returns them, and how long it is until the next one.
func (a *Alarms) ring(now time.Time) (members []string, next time.Duration) {
	next = time.Hour
	a.mu.Lock()
	defer a.mu.Unlock()
	for member, at := range a.due {
		if wait := at.Sub(now); wait > 0 {
			next = min(next, wait)
		} else {
			members = append(members, member)
			delete(a.due, member)
		}
	}
	return members, next
}

func (a *Alarms) run(ctx context.Context, _ *Client, events events) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		case <-timer.C:
		}
		members, next := a.ring(time.Now())
		events.changed(members)
		timer.Reset(next)
	}
}

// An alarm lists nothing, so there is nothing to wait for.

func (a *Alarms) states() []watchState { return nil }
func (a *Alarms) members() []string    { return nil }
