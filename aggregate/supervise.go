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
	events       events.EventRecorder // nil: no Events
	publicName   func(member string) string

	// Guarded by Provider.mu:
	backend   backends.Backend
	rank      int  // its place in the order of precedence
	replace   bool // see BackendOptions.Replace
	headStart time.Time
	cancel    context.CancelFunc // ends its supervisor; nil if it never had one
	stopped   chan struct{}      // closed when its last supervisor has ended; nil if it never had one
	removed   chan struct{}      // closed when its removal is done; nil unless it is being removed

	// mu orders the backend's words: it is held while one is passed on to the engine, which returns at once.
	mu         sync.Mutex
	source     engagement.Source
	run        int                // the present Run; words of an earlier one do not count
	members    map[string]*listed // every member that it lists, and those that the guard has not let go
	synced     bool               // the present Run has
	everSynced bool               // a Run has
	health     backends.Health
	guard      guard
	guardTimer *time.Timer // has the guard decide; nil if nothing is leaving
	alarm      string      // what the guard has to say, to be logged when mu is given up
	log        logr.Logger
}

// unlock gives mu up, and logs what there is to be logged.
func (s *supervised) unlock() {
	alarm, log := s.alarm, s.log
	s.alarm = ""
	s.mu.Unlock()
	if alarm != "" {
		log.Error(nil, "clusters vanished in a mass; they are held", "message", alarm)
	}
}

// listed is what a backend has said last of a member.
type listed struct {
	reported bool // by the present Run
	info     backends.Info
	source   backends.ObjectReference
	hints    backends.Identity
}

func newSupervised(name string, backend backends.Backend, opts BackendOptions, publicName func(string) string) *supervised {
	return &supervised{
		name: name, prefix: opts.Prefix, backend: backend, events: opts.Events, replace: opts.Replace, publicName: publicName,
		members: map[string]*listed{}, health: backends.Health{Reason: backends.ReasonStarting}, guard: guard{opts: opts.Guard.withDefaults()},
	}
}

// supervise starts a backend's supervisor, unless it is being removed. The caller holds p.mu.
func (p *Provider) supervise(s *supervised) {
	if s.removed != nil {
		return
	}
	ctx, cancel := context.WithCancel(p.session.ctx)
	previous := s.stopped
	s.cancel, s.stopped = cancel, make(chan struct{})
	s.headStart = time.Now().Add(p.opts.HeadStart)
	stopped, log, backend := s.stopped, p.session.log.WithValues("backend", s.name), s.backend
	p.session.wg.Go(func() {
		defer close(stopped)
		defer cancel()
		if previous != nil {
			<-previous // a backend that did not stop in time is not run twice at once
		}
		defer s.dropLeaving()
		p.keepRunning(ctx, s, backend, log)
	})
}

// keepRunning runs the backend until ctx ends, and starts it again whenever it fails.
func (p *Provider) keepRunning(ctx context.Context, s *supervised, backend backends.Backend, log logr.Logger) {
	for failures := 0; ; failures++ {
		began := time.Now()
		words := s.newRun(p, log)
		err := runContained(ctx, backend, words, log)
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
		log.Error(err, "backend failed; it is started again", "restartIn", wait)
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
	s   *supervised
	p   *Provider
	run int
}

func (s *supervised) newRun(p *Provider, log logr.Logger) *engager {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
	s.synced, s.log = false, log
	if s.health.Reason != backends.ReasonBackendFailed { // which stays until it has synced
		s.health = backends.Health{Reason: backends.ReasonStarting}
	}
	for _, m := range s.members {
		m.reported = false
	}
	return &engager{s, p, s.run}
}

// end makes further words of the Run count for nothing.
func (e *engager) end() { e.say(func() { e.s.run++ }) }

// Engage implements backends.Engager.
func (e *engager) Engage(c backends.Cluster) {
	e.say(func() {
		e.s.list(c.Name, c.Info, c.Source, c.Hints)
		e.p.engine.Declare(e.s.publicName(c.Name), e.s.source, c)
	})
}

// Hold implements backends.Engager.
func (e *engager) Hold(name string, h backends.Hold) {
	e.say(func() {
		e.s.list(name, h.Info, h.Source, h.Hints)
		e.p.engine.Hold(e.s.publicName(name), e.s.source, name, h)
	})
}

// list takes note that the present Run lists a member. The caller holds s.mu.
func (s *supervised) list(member string, info backends.Info, source backends.ObjectReference, hints backends.Identity) {
	m := s.members[member]
	if m == nil {
		m = &listed{}
		s.members[member] = m
	}
	*m = listed{true, info, source, hints}
	s.guard.back(member)
}

// Disengage implements backends.Engager.
func (e *engager) Disengage(name string, r backends.Reason) {
	e.say(func() {
		if e.s.members[name] != nil {
			e.s.guard.vanish(time.Now(), name, r)
			e.s.letGo(e.p.engine)
		}
	})
}

// Synced implements backends.Engager.
func (e *engager) Synced() {
	first := false
	e.say(func() {
		first = !e.s.everSynced
		e.s.synced, e.s.everSynced = true, true
		if e.s.health.Reason == backends.ReasonStarting || e.s.health.Reason == backends.ReasonBackendFailed {
			e.s.health = backends.Health{}
		}
		now := time.Now()
		for member, m := range e.s.members {
			if !m.reported && e.s.guard.leaving[member] == nil {
				e.s.guard.vanish(now, member, backends.ReasonNotListed)
			}
		}
		e.s.letGo(e.p.engine)
	})
	if first {
		e.p.mu.Lock()
		defer e.p.mu.Unlock()
		e.p.applyRanks() // others may have waited for this one
	}
}

// letGo has the engine told of members that the guard lets go, or holds. The caller holds s.mu.
func (s *supervised) letGo(engine *engagement.Engine) {
	if s.guardTimer != nil {
		s.guardTimer.Stop()
		s.guardTimer = nil
	}
	now := time.Now()
	gone, held := s.guard.decide(now, len(s.members))
	for _, member := range gone {
		delete(s.members, member)
		engine.Withdraw(s.publicName(member), s.name, s.guard.leave(member))
	}
	for _, member := range held {
		m := s.members[member]
		engine.Hold(s.publicName(member), s.source, member, backends.Hold{
			Reason: backends.ReasonVanished, Keep: true, Message: s.guard.message(),
			Info: m.info, Source: m.source, Hints: m.hints,
		})
	}
	if len(held) > 0 {
		s.alarm = s.guard.message()
	}
	if at := s.guard.next(); !at.IsZero() {
		var timer *time.Timer
		timer = time.AfterFunc(at.Sub(now), func() {
			s.mu.Lock()
			defer s.unlock()
			if s.guardTimer == timer {
				s.letGo(engine)
			}
		})
		s.guardTimer = timer
	}
}

// dropLeaving forgets what is leaving when a supervisor ends: the next Run tells what it lists.
func (s *supervised) dropLeaving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetGuard()
}

// resetGuard ends the guard's timer and forgets what it was about. The caller holds s.mu.
func (s *supervised) resetGuard() {
	if s.guardTimer != nil {
		s.guardTimer.Stop()
		s.guardTimer = nil
	}
	s.guard = guard{opts: s.guard.opts}
}

// Report implements backends.Engager.
func (e *engager) Report(h backends.Health) { e.say(func() { e.s.health = h }) }

// say does something under the lock if the Run is the present one.
func (e *engager) say(do func()) {
	e.s.mu.Lock()
	defer e.s.unlock()
	if e.run == e.s.run {
		do()
	}
}

// withdrawAll takes back everything that the backend lists, and returns the public names.
func (s *supervised) withdrawAll(engine *engagement.Engine, reason backends.Reason) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
	s.resetGuard()
	names := make([]string, 0, len(s.members))
	for _, member := range slices.Sorted(maps.Keys(s.members)) {
		name := s.publicName(member)
		names = append(names, name)
		engine.Withdraw(name, s.name, reason)
	}
	return names
}

// rankAs gives what the backend lists its place in the order of precedence.
func (s *supervised) rankAs(engine *engagement.Engine, source engagement.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source == source {
		return
	}
	s.source = source
	for member := range s.members {
		engine.Rank(s.publicName(member), source)
	}
}

// setGuard has another guard decide from now on.
func (s *supervised) setGuard(o GuardOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard.opts = o.withDefaults()
}

func (s *supervised) hasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.everSynced
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
