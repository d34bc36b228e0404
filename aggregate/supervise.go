package aggregate

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/engagement"
)

const (
	// restartBase and restartMax bound the wait before a failed backend is started again.
	restartBase = time.Second
	restartMax  = time.Minute
)

// supervised is a backend, and what it has said.
type supervised struct {
	name, prefix string
	backend      backends.Backend
	events       events.EventRecorder // nil: no Events
	source       engagement.Source
	publicName   func(member string) string

	// Guarded by Provider.mu:
	cancel  context.CancelFunc // ends its supervisor; nil if it never had one
	stopped chan struct{}      // closed when its last supervisor has ended; nil if it never had one
	removed chan struct{}      // closed when its removal is done; nil unless it is being removed

	// mu orders the backend's words: it is held while one is passed on to the engine, which returns at once.
	mu      sync.Mutex
	run     int             // the present Run; words of an earlier one do not count
	members map[string]bool // every member that it lists → whether the present Run has reported it
	synced  bool            // the present Run has
	health  backends.Health
}

// supervise starts a backend's supervisor, unless it is being removed. The caller holds p.mu.
func (p *Provider) supervise(s *supervised) {
	if s.removed != nil {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	previous := s.stopped
	s.cancel, s.stopped = cancel, make(chan struct{})
	stopped, log := s.stopped, p.log.WithValues("backend", s.name)
	p.wg.Go(func() {
		defer close(stopped)
		defer cancel()
		if previous != nil {
			<-previous // a backend that did not stop in time is not run twice at once
		}
		p.keepRunning(ctx, s, log)
	})
}

// keepRunning runs the backend until ctx ends, and starts it again whenever it fails.
func (p *Provider) keepRunning(ctx context.Context, s *supervised, log logr.Logger) {
	for failures := 0; ; failures++ {
		began := time.Now()
		words := s.newRun(p.engine)
		err := runContained(ctx, s.backend, words, log)
		words.end()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > restartMax {
			failures = 0
		}
		if err == nil {
			err = fmt.Errorf("ended by itself")
		}
		wait := time.Duration((0.5 + rand.Float64()/2) * float64(min(restartMax, restartBase<<min(failures, 16))))
		s.setHealth(backends.Health{Reason: backends.ReasonBackendFailed, Message: truncate(err.Error())})
		log.Error(err, "backend failed; its clusters stay as they are", "restartIn", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// runContained runs a backend and turns its panic into an error.
func runContained(ctx context.Context, b backends.Backend, e backends.Engager, log logr.Logger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panicked: %v", r)
			log.Error(err, "panic contained", "stack", string(debug.Stack()))
		}
	}()
	return b.Run(ctx, e)
}

// engager takes the words of one Run.
type engager struct {
	s      *supervised
	engine *engagement.Engine
	run    int
}

func (s *supervised) newRun(engine *engagement.Engine) *engager {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
	s.synced = false
	if s.members == nil {
		s.members = map[string]bool{}
	}
	for member := range s.members {
		s.members[member] = false
	}
	return &engager{s, engine, s.run}
}

// end makes further words of the Run count for nothing.
func (e *engager) end() { e.say(func() { e.s.run++ }) }

// Engage implements backends.Engager.
func (e *engager) Engage(c backends.Cluster) {
	e.say(func() {
		e.s.members[c.Name] = true
		e.engine.Declare(e.s.publicName(c.Name), e.s.source, c)
	})
}

// Hold implements backends.Engager.
func (e *engager) Hold(name string, h backends.Hold) {
	e.say(func() {
		e.s.members[name] = true
		e.engine.Hold(e.s.publicName(name), e.s.source, name, h)
	})
}

// Disengage implements backends.Engager.
func (e *engager) Disengage(name string, r backends.Reason) {
	e.say(func() {
		delete(e.s.members, name)
		e.engine.Withdraw(e.s.publicName(name), e.s.name, r)
	})
}

// Synced implements backends.Engager.
func (e *engager) Synced() {
	e.say(func() {
		e.s.synced = true
		if e.s.health.Reason == backends.ReasonStarting || e.s.health.Reason == backends.ReasonBackendFailed {
			e.s.health = backends.Health{}
		}
		for member, reported := range e.s.members {
			if !reported {
				delete(e.s.members, member)
				e.engine.Withdraw(e.s.publicName(member), e.s.name, backends.ReasonNotListed)
			}
		}
	})
}

// Report implements backends.Engager.
func (e *engager) Report(h backends.Health) { e.say(func() { e.s.health = h }) }

// say does something under the lock if the Run is the present one.
func (e *engager) say(do func()) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	if e.run == e.s.run {
		do()
	}
}

// withdrawAll takes back everything that the backend lists, and returns the public names.
func (s *supervised) withdrawAll(engine *engagement.Engine, reason backends.Reason) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
	names := make([]string, 0, len(s.members))
	for _, member := range slices.Sorted(maps.Keys(s.members)) {
		name := s.publicName(member)
		names = append(names, name)
		engine.Withdraw(name, s.name, reason)
	}
	return names
}

func (s *supervised) setHealth(h backends.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = h
}

// waitFor waits for wg until ctx ends, and reports whether it is done.
func waitFor(ctx context.Context, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
