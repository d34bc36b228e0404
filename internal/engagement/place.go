package engagement

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// silentFactor is how many times longer than usual a cluster may take to its first answer before its attempt leaves
	// its place. It is measured by what others take, so that many do not leave, and more begin, where all are slow
	// because this process or its network is overloaded.
	silentFactor = 2
	// silentMin and silentFirst are how long it takes at least, and as long as nobody has answered yet.
	silentMin   = 100 * time.Millisecond
	silentFirst = 2 * time.Second
	// silentPerPlace is how many attempts there may be for each place that wait for a first answer without one.
	silentPerPlace = 4
)

// places bounds how many attempts run at once, and so what they cost together. But waiting for a cluster that is silent
// costs nothing, so an attempt that does so leaves its place to another. Else the dead clusters of a fleet would hold
// all places for whole timeouts, and its healthy ones would wait.
type places struct {
	running *turns
	silent  chan struct{}
	usual   atomic.Int64 // how long first answers take: a moving average in nanoseconds; 0: nobody has answered
}

func newPlaces(n int) *places {
	return &places{running: newTurns(n), silent: make(chan struct{}, silentPerPlace*n)}
}

// patience is how long a first answer may take before the attempt leaves its place.
func (p *places) patience() time.Duration {
	usual := time.Duration(p.usual.Load())
	if usual == 0 {
		return silentFirst
	}
	return max(silentMin, silentFactor*usual)
}

// answered takes note of how long a first answer took.
func (p *places) answered(took time.Duration) {
	for {
		was := p.usual.Load()
		now := was + (int64(took)-was)/8
		if was == 0 {
			now = int64(took)
		}
		if p.usual.CompareAndSwap(was, now) {
			return
		}
	}
}

// place is an attempt's.
type place struct {
	of     *places
	source string // of the connection that is tried
	in     room
}

// room is where an attempt takes up room.
type room uint8

const (
	nowhere room = iota
	amongRunning
	amongSilent
)

// enter waits for a place for an attempt upon a source's connection until ctx ends. Sources take turns.
func (p *places) enter(ctx context.Context, source string) (*place, error) {
	x := &place{of: p, source: source}
	return x, x.enter(ctx)
}

func (x *place) enter(ctx context.Context) error {
	if err := x.of.running.enter(ctx, x.source); err != nil {
		return err
	}
	x.in = amongRunning
	return nil
}

// leave gives up what room there is.
func (x *place) leave() {
	switch x.in {
	case amongRunning:
		x.of.running.leave()
	case amongSilent:
		<-x.of.silent
	}
	x.in = nowhere
}

// await asks for a first answer, and leaves the place if that takes long. It has a place again when it returns without an
// error.
func (x *place) await(ctx context.Context, ask func(context.Context) error) error {
	began, done := time.Now(), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { x.leaveIfSilent(began, done) })
	err := ask(ctx)
	took := time.Since(began)
	close(done)
	wg.Wait()
	if err != nil {
		return err
	}
	x.of.answered(took)
	if x.in == amongRunning {
		return nil
	}
	x.leave()
	return x.enter(ctx)
}

// leaveIfSilent leaves the place when the answer takes long, unless too many are silent already.
func (x *place) leaveIfSilent(began time.Time, done <-chan struct{}) {
	for {
		left := x.of.patience() - time.Since(began)
		if left <= 0 {
			break
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C: // look again: the usual may have changed
		case <-done:
			timer.Stop()
			return
		}
	}
	select {
	case x.of.silent <- struct{}{}:
		x.leave()
		x.in = amongSilent
	case <-done:
	}
}
