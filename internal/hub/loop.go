package hub

import (
	"context"
	"slices"
	"sync"

	"github.com/tributary-fleet/tributary/backends"
)

// Watcher is what a Loop needs of a [Source], whatever its type of view.
type Watcher interface {
	run(context.Context, *Client, events)
	states() []watchState
	members() []string
}

// events is how a source tells its loop what has happened.
type events interface {
	// changed: objects that concern these members have changed.
	changed(members []string)
	// wake: a watch is doing better or worse than before.
	wake()
}

// Loop runs the sources of a backend and reconciles its members.
type Loop struct {
	// Sources are watched while the loop runs.
	Sources []Watcher
	// Reconcile says to the Engager what is true of a member now, as far as the sources know. It is called for
	// every member that an object of a source may concern, and again whenever one of those changed, but not before
	// every watch has listed or failed to: a Cluster that is listed before its Secret would look like one
	// without access. It makes no request.
	Reconcile func(ctx context.Context, member string)
	// Engager is told when all members have been reconciled once, and how the inventory is doing. It is called,
	// by the loop and by Reconcile, from one goroutine only.
	Engager backends.Engager

	mu      sync.Mutex
	queue   []string            // members to reconcile, in order
	queued  map[string]struct{} // the same as a set
	pending chan struct{}       // holds one element if there may be something to do
}

// Run watches and reconciles until ctx ends. Nothing that it started is left then.
func (l *Loop) Run(ctx context.Context, client *Client) {
	l.queue, l.queued, l.pending = nil, map[string]struct{}{}, make(chan struct{}, 1)

	defer client.open(ctx)()

	var wg sync.WaitGroup
	for _, source := range l.Sources {
		wg.Go(func() { source.run(ctx, client, l) })
	}
	l.work(ctx)
	wg.Wait()
}

func (l *Loop) work(ctx context.Context) {
	var told backends.Health
	known, synced := 0, false
	for {
		// The states are looked at before the queue is taken, because a source queues its members before it
		// says that it has listed.
		now := l.summary()
		if now.health != told {
			told = now.health
			l.Engager.Report(told)
		}
		if now.answered == now.watches {
			batch := l.take()
			if now.listed > known {
				// What was unknown before is known now, which may concern anybody.
				batch = append(batch, l.everybody()...)
				slices.Sort(batch)
				batch = slices.Compact(batch)
				known = now.listed
			}
			for _, member := range batch {
				if ctx.Err() != nil {
					return
				}
				l.Reconcile(ctx, member)
			}
		}
		if now.listed == now.watches && !synced {
			synced = true
			l.Engager.Synced()
		}
		select {
		case <-ctx.Done():
			return
		case <-l.pending:
		}
	}
}

// summary is how the watches of all sources are doing.
type summary struct {
	watches  int
	answered int // watches that have listed or failed to
	listed   int // watches that have listed
	health   backends.Health
}

func (l *Loop) summary() summary {
	var sum summary
	var all []backends.Health
	for _, source := range l.Sources {
		for _, state := range source.states() {
			sum.watches++
			if state.answered {
				sum.answered++
			}
			if state.listed {
				sum.listed++
			}
			all = append(all, state.health)
		}
	}
	sum.health = worst(all)
	return sum
}

// take empties the queue.
func (l *Loop) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.queue
	l.queue = nil
	clear(l.queued)
	return batch
}

// everybody returns every member that any object may concern, some of them repeatedly.
func (l *Loop) everybody() []string {
	var members []string
	for _, source := range l.Sources {
		members = append(members, source.members()...)
	}
	return members
}

func (l *Loop) changed(members []string) {
	if len(members) == 0 {
		return
	}
	l.mu.Lock()
	for _, member := range members {
		if _, ok := l.queued[member]; !ok {
			l.queued[member] = struct{}{}
			l.queue = append(l.queue, member)
		}
	}
	l.mu.Unlock()
	l.wake()
}

func (l *Loop) wake() {
	select {
	case l.pending <- struct{}{}:
	default:
	}
}
