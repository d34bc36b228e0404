package engagement

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

var (
	schedules = flag.Int("schedules", 1000, "how many random schedules TestSimulation runs")
	firstSeed = flag.Uint64("seed", 1, "the first schedule's seed")
)

// TestSimulation runs a machine under random schedules of inventory events, connection results in any order and
// late, probe results, crashes of a backend, and time, and checks after every step what must always hold. A violation is shrunk
// and printed as a script for testdata/machine.
func TestSimulation(t *testing.T) {
	var (
		wg     sync.WaitGroup
		next   atomic.Uint64
		failed atomic.Bool
	)
	next.Store(*firstSeed)
	end := *firstSeed + uint64(*schedules)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := next.Add(1) - 1; seed < end && !failed.Load(); seed = next.Add(1) - 1 {
				s := schedule(seed)
				if problem := newWorld().run(s); problem != "" {
					failed.Store(true)
					s = shrink(s)
					w := newWorld()
					problem = w.run(s)
					t.Errorf("seed %d: %s\n\nreplay:\n\n%s", seed, problem, strings.Join(w.script, "\n"))
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d schedules from seed %d", *schedules, *firstSeed)
}

// TestSimulationFinds proves that the simulation sees what it is there to see: machines that are broken on purpose.
func TestSimulationFinds(t *testing.T) {
	for name, breakIt := range map[string]func(m *Machine){
		"an engagement forgotten without its end": func(m *Machine) {
			if m.lastEngagement == 2 {
				m.current = nil
			}
		},
		"a wake-up that never comes": func(m *Machine) {
			for _, c := range m.candidates {
				if c.retry.failures == 2 {
					c.retry.at = c.retry.at.Add(1000 * time.Hour)
				}
			}
		},
		"a change of connection that goes unheard": func(m *Machine) {
			if m.current != nil && m.lastGeneration == 3 {
				for _, c := range m.candidates {
					c.cluster.Connection = m.current.link.Connection
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				w := newWorld()
				w.breakIt = breakIt
				if w.run(schedule(seed)) != "" {
					return
				}
			}
			t.Error("2000 schedules found nothing")
		})
	}
}

// op is one thing that happens in a schedule; its numbers choose among what is possible then.
type op struct{ kind, a, b uint8 }

func schedule(seed uint64) []op {
	r := rand.New(rand.NewPCG(seed, 0))
	ops := make([]op, 20+r.IntN(60))
	for i := range ops {
		ops[i] = op{uint8(r.IntN(int(opKinds))), uint8(r.UintN(256)), uint8(r.UintN(256))}
	}
	return ops
}

// shrink returns a shorter schedule that is in violation still.
func shrink(s []op) []op {
	for size := len(s) / 2; size > 0; size /= 2 {
		for i := 0; i+size <= len(s); {
			shorter := slices.Delete(slices.Clone(s), i, i+size)
			if newWorld().run(shorter) != "" {
				s = shorter
			} else {
				i += size
			}
		}
	}
	return s
}

const (
	opDeclare uint8 = iota
	opHold
	opWithdraw
	opConnected
	opConnectFailed
	opLateResult
	opHandedOver
	opSynced
	opProbed
	opStopped
	opDrained
	opTime
	opRank
	opClaimed
	opKinds
)

// world is everything around a machine: what it was asked to do, and what has become of it.
type world struct {
	machine *Machine
	now     time.Time
	script  []string
	breakIt func(*Machine)

	order      []string                    // the sources, in their order of precedence
	shadowed   bool                        // another name serves the cluster
	fallback   bool                        // what runs was engaged for want of a source before it
	orphaned   time.Time                   // since when the source of what runs does not list the name
	declared   map[string]*connection.Spec // what each source says; nil: held
	keeps      map[string]bool             // held sources that keep their engagement
	attempt    *Connect                    // the one that runs
	cancelled  []uint64                    // attempts that were cancelled and have not returned
	running    uint64                      // the engagement that runs, or 0
	inForce    Link                        // what it runs upon
	server     string                      // the cluster that it runs in
	generation uint64                      // in force
	probing    bool
	draining   []uint64
	anchored   bool    // the source of what ran last has listed the name ever since
	replacing  bool    // what ran was ended to be replaced
	inFlight   Connect // the attempt whose success is being reported
	ended      map[uint64]bool
	problem    string
}

func newWorld() *world {
	return &world{
		machine: NewMachine(Timing{}), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		order: slices.Clone(sources), declared: map[string]*connection.Spec{}, keeps: map[string]bool{}, ended: map[uint64]bool{},
	}
}

// run plays a schedule, and then a quiet time in which everything works. It returns the first violation.
func (w *world) run(s []op) string {
	for _, o := range s {
		if w.play(o); w.problem != "" {
			return w.problem
		}
	}
	// From here on every attempt succeeds and nobody says anything new: what is declared must come to be engaged.
	if w.shadowed {
		w.play(op{kind: opClaimed})
	}
	for range 60 {
		switch {
		case w.attempt != nil:
			w.play(op{kind: opConnected, b: 1})
		case len(w.draining) > 0:
			w.play(op{kind: opDrained})
		case len(w.cancelled) > 0:
			w.play(op{kind: opLateResult})
		default:
			w.play(op{kind: opSynced})
			w.advance(6 * time.Minute)
			w.probed(nil)
		}
		if w.problem != "" {
			return w.problem
		}
	}
	want, wanted := w.wanted()
	serving := w.declared[w.inForce.Source]
	switch {
	case wanted && w.running == 0 && !(w.anchored && w.inForce.Source != want && w.server != serverOf(*w.declared[want])):
		w.fail("declared by %s, and not engaged after a quiet time: %+v", want, w.machine.Status())
	case wanted && w.running == 0:
		// The name stands for another cluster: its source lists it still, and has it held back.
	case wanted && serving == nil && !w.keeps[w.inForce.Source]:
		w.fail("declared by %s, and runs for %s after a quiet time, which does not declare it", want, w.inForce.Source)
	case wanted && serving != nil && !w.inForce.Connection.Equal(*serving):
		w.fail("declared by %s with %v, and runs upon %v after a quiet time", w.inForce.Source, serving.Endpoint.Server, w.inForce.Connection.Endpoint.Server)
	case wanted && want != w.inForce.Source && w.server == serverOf(*w.declared[want]) && w.inForce.Facts.Rights == "user":
		w.fail("declared by %s, and runs for %s after a quiet time, though both lead to %s", want, w.inForce.Source, w.server)
	case len(w.declared) == 0 && (w.running != 0 || !w.machine.Idle()):
		w.fail("nobody lists the name, and something of it is left after a quiet time")
	}
	return w.problem
}

// sources are in their first order of precedence.
var sources = []string{"first", "second"}

func serverOf(spec connection.Spec) string {
	return strings.TrimPrefix(spec.Endpoint.Server, "https://")
}

// wanted returns the source that is to serve the name by the order of precedence, if one is to.
func (w *world) wanted() (string, bool) {
	for _, s := range w.order {
		if spec, listed := w.declared[s]; listed && spec != nil {
			return s, true
		} else if listed && w.keeps[s] && w.running != 0 && w.inForce.Source == s {
			return "", false // what runs is kept as it is
		}
	}
	return "", false
}

func (w *world) play(o op) {
	source := sources[int(o.a)%len(sources)]
	from := Source{Name: source, Rank: slices.Index(w.order, source)}
	if (o.kind == opDeclare || o.kind == opHold) && source == w.inForce.Source {
		w.orphaned = time.Time{} // it is listed again
	}
	switch o.kind {
	case opDeclare:
		spec := connection.Spec{
			Endpoint: connection.Endpoint{Server: fmt.Sprintf("https://server-%d", o.b%3)},
			Auth:     connection.Auth{Token: connection.NewSecret(fmt.Sprintf("token-%d", o.b/3%3))},
		}
		if said := w.declared[source]; said == nil || !said.Equal(spec) {
			w.shadowed = false // the name may lead elsewhere now
		}
		w.declared[source] = &spec
		w.say("declare from=%s:%d server=server-%d token=token-%d", source, from.Rank, o.b%3, o.b/3%3)
		w.step(Declared{from, backends.Cluster{Name: "member", Connection: spec}})
	case opHold:
		keep := o.b%2 == 0
		w.declared[source], w.keeps[source] = nil, keep
		if keep {
			w.say("hold from=%s:%d reason=Paused keep", source, from.Rank)
			w.step(Held{from, "member", backends.Hold{Reason: backends.ReasonPaused, Keep: true}})
			return
		}
		w.say("hold from=%s:%d reason=PolicyViolation rejected", source, from.Rank)
		serves := w.running != 0 && w.inForce.Source == source
		w.step(Held{from, "member", backends.Hold{Reason: backends.ReasonPolicyViolation, Rejected: true}})
		if serves && w.running != 0 && w.inForce.Source == source {
			w.fail("policy refuses %s, and its connection is used still", source)
		}
	case opWithdraw:
		if _, listed := w.declared[source]; listed {
			w.shadowed = false
		}
		delete(w.declared, source)
		w.anchored = w.anchored && w.inForce.Source != source
		if w.running != 0 && w.inForce.Source == source && w.orphaned.IsZero() {
			w.orphaned = w.now
		}
		w.say("withdraw from=%s reason=Deleted", source)
		w.step(Withdrawn{source, backends.ReasonDeleted})
	case opConnected:
		if w.attempt != nil {
			w.connected(o.b)
		}
	case opConnectFailed:
		if w.attempt != nil {
			g := w.attempt.Generation
			w.attempt = nil
			w.say("connect-failed gen=%d reason=Timeout", g)
			w.step(ConnectFailed{g, Failure{backends.ReasonTimeout, "timeout"}, 1})
		}
	case opLateResult:
		if len(w.cancelled) > 0 {
			w.late(o)
		}
	case opHandedOver:
		if w.running != 0 {
			w.say("handed-over engagement=%d", w.running)
			w.step(EngageReturned{Engagement: w.running})
		}
	case opSynced:
		w.say("synced engagement=%d", w.running)
		w.step(Synced{w.running})
	case opProbed:
		var failure *Failure
		if o.b%2 == 0 {
			failure = &Failure{backends.ReasonTimeout, "timeout"}
		}
		w.probed(failure)
	case opStopped:
		if w.running != 0 {
			w.say("ended-by-itself engagement=%d", w.running)
			w.step(Stopped{w.running, Failure{backends.ReasonEngageFailed, "ended"}, 1})
		}
	case opDrained:
		if len(w.draining) > 0 {
			id := w.draining[0]
			w.draining = w.draining[1:]
			w.say("drained engagement=%d", id)
			w.step(Drained{id})
		}
	case opTime:
		w.advance(time.Duration(o.a) * 100 * time.Millisecond)
	case opRank:
		slices.Reverse(w.order)
		for rank, s := range w.order {
			w.say("rank from=%s:%d", s, rank)
			w.step(Ranked{Source{Name: s, Rank: rank}})
		}
	case opClaimed:
		if w.shadowed = !w.shadowed; w.shadowed {
			w.say("claimed first=other shadowed")
			w.step(Claimed{First: "other", Shadowed: true})
			if w.running != 0 {
				w.fail("another name serves the cluster, and this one is engaged still")
			}
		} else {
			w.say("claimed")
			w.step(Claimed{})
		}
	}
}

// connected has the attempt succeed as the driver would report it.
func (w *world) connected(choice uint8) {
	a := *w.attempt
	w.attempt = nil
	e := Connected{Generation: a.Generation, Jitter: 1, Facts: Facts{
		UID: serverOf(a.Link.Connection), User: "user", Rights: "user",
	}}
	if choice%5 == 0 {
		e.Facts.User, e.Facts.Rights = "other", "other"
	}
	if a.Running != 0 && CanSwap(a.RunningLink, Link{Source: a.Link.Source, Connection: a.Link.Connection, Facts: e.Facts}) {
		e.SwapOnly = a.Running
	}
	swap := ""
	if e.SwapOnly != 0 {
		swap = fmt.Sprintf(" swap=%d", e.SwapOnly)
	}
	w.say("connected gen=%d uid=%s user=%s%s", e.Generation, e.Facts.UID, e.Facts.User, swap)
	w.inFlight = a
	w.inFlight.Link.Facts = e.Facts
	w.step(e)
}

// late has a cancelled attempt return after all: nothing may come of it.
func (w *world) late(o op) {
	g := w.cancelled[0]
	w.cancelled = w.cancelled[1:]
	before := w.machine.Status()
	var actions []Action
	if o.a%2 == 0 {
		w.say("connected gen=%d uid=server-0 user=user", g)
		actions = w.step(Connected{Generation: g, Facts: Facts{UID: "server-0", User: "user"}})
		if !slices.Contains(actions, Action(Discard{g})) {
			w.fail("a connection that came too late was not discarded")
		}
	} else {
		w.say("connect-failed gen=%d reason=Timeout", g)
		actions = w.step(ConnectFailed{g, Failure{backends.ReasonTimeout, "timeout"}, 1})
	}
	for _, a := range actions {
		switch a.(type) {
		case Discard, Probe, Connect: // the latter two may have become due by time
		default:
			w.fail("a late result caused %s", describeAction(a))
		}
	}
	if after := w.machine.Status(); after.State != before.State {
		w.fail("a late result changed %s to %s", before.State, after.State)
	}
}

func (w *world) probed(failure *Failure) {
	if !w.probing {
		return
	}
	w.probing = false
	failed := ""
	if failure != nil {
		failed = " failed=" + string(failure.Reason)
	}
	w.say("probed engagement=%d gen=%d%s", w.running, w.generation, failed)
	w.step(Probed{Engagement: w.running, Generation: w.generation, Failure: failure, Jitter: 1})
}

func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	w.say("after %v", d)
	w.step(Tick{})
	if at := w.machine.WakeAt(); !at.IsZero() && !at.After(w.now) {
		w.fail("it wants to be woken at once after a tick: a busy loop")
	}
}

func (w *world) say(format string, args ...any) {
	w.script = append(w.script, fmt.Sprintf(format, args...)+"\n----\n")
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf(format, args...)
	}
}

// step feeds an event, does what the machine asks for, and checks what must always hold.
func (w *world) step(e Event) []Action {
	actions := w.machine.Step(w.now, e)
	if w.breakIt != nil {
		w.breakIt(w.machine)
	}
	for _, a := range actions {
		w.do(a)
	}
	w.check()
	return actions
}

func (w *world) do(a Action) {
	switch a := a.(type) {
	case Connect:
		if w.attempt != nil {
			w.fail("generation %d is connected while %d is", a.Generation, w.attempt.Generation)
		}
		if a.Running != w.running {
			w.fail("generation %d is meant for engagement %d while %d runs", a.Generation, a.Running, w.running)
		}
		w.attempt = &a
	case CancelConnect:
		if w.attempt == nil || w.attempt.Generation != a.Generation {
			w.fail("generation %d is cancelled and was not being connected", a.Generation)
			return
		}
		w.attempt = nil
		w.cancelled = append(w.cancelled, a.Generation)
	case Engage:
		if w.running != 0 {
			w.fail("engagement %d starts while %d runs", a.Engagement, w.running)
		}
		if w.ended[a.Engagement] || a.Generation != w.inFlight.Generation {
			w.fail("engagement %d upon generation %d: used before, or not the one just proved", a.Engagement, a.Generation)
		}
		if w.inFlight.SwapOnly {
			w.fail("engagement %d upon generation %d, which was to be swapped only", a.Engagement, a.Generation)
		}
		before, standing := w.declared[w.inForce.Source]
		standing = standing && (before != nil || w.keeps[w.inForce.Source])
		mayTake := w.fallback && slices.Index(w.order, w.inFlight.Link.Source) < slices.Index(w.order, w.inForce.Source)
		if w.replacing && standing && w.inForce.Source != w.inFlight.Link.Source && w.server != serverOf(w.inFlight.Link.Connection) && !mayTake {
			w.fail("%s takes the name from %s, which leads to another cluster", w.inFlight.Link.Source, w.inForce.Source)
		}
		w.running, w.probing = a.Engagement, false
		w.upon(w.inFlight)
		w.fallback = w.declared[w.order[0]] != nil && w.order[0] != w.inForce.Source
	case Swap:
		if w.running != a.Engagement || a.Generation != w.inFlight.Generation {
			w.fail("generation %d is swapped under engagement %d while %d runs", a.Generation, a.Engagement, w.running)
		}
		if w.server != w.inFlight.Link.Connection.Endpoint.Server[len("https://"):] {
			w.fail("another cluster is swapped under engagement %d", a.Engagement)
		}
		w.upon(w.inFlight)
	case Disengage:
		if w.running != a.Engagement || w.ended[a.Engagement] {
			w.fail("engagement %d is disengaged while %d runs", a.Engagement, w.running)
		}
		w.ended[a.Engagement] = true
		w.draining = append(w.draining, a.Engagement)
		w.running, w.probing, w.orphaned = 0, false, time.Time{}
		w.replacing = a.Reason == backends.ReasonReplaced
	case Probe:
		if w.running != a.Engagement || w.probing {
			w.fail("engagement %d is probed while %d runs, or twice at once", a.Engagement, w.running)
		}
		w.probing = true
	case Discard:
	}
}

func (w *world) upon(a Connect) {
	w.inForce = a.Link
	w.anchored = true
	w.server, w.orphaned = serverOf(a.Link.Connection), time.Time{}
	w.generation = a.Generation
}

// check compares what is shown with what is, and makes sure that nothing is stuck.
func (w *world) check() {
	s := w.machine.Status()
	switch s.State {
	case backends.Engaged, backends.Degraded:
		if w.running == 0 {
			w.fail("shown as %s, and nothing runs", s.State)
		}
	default:
		if w.running != 0 {
			w.fail("shown as %s, and engagement %d runs", s.State, w.running)
		}
	}
	if (s.State == backends.Draining) != (len(w.declared) == 0) {
		w.fail("shown as %s while %d sources list the name", s.State, len(w.declared))
	}
	waits := s.State == backends.Connecting || s.State == backends.Disconnected
	if waits && w.attempt == nil && w.machine.WakeAt().IsZero() {
		w.fail("shown as %s, with no attempt and no wake-up: stuck", s.State)
	}
	if at := w.machine.WakeAt(); at.Sub(w.now) > 6*time.Minute {
		w.fail("wants to be woken in %v: no state may last that long", at.Sub(w.now))
	}
	if a := w.attempt; a != nil {
		if spec := w.declared[a.Link.Source]; spec == nil || !a.Link.Connection.Equal(*spec) || w.shadowed {
			w.fail("generation %d is being connected for nobody", a.Generation)
		}
	}
	if _, lists := w.declared[w.inForce.Source]; w.running != 0 && !lists && w.now.Sub(w.orphaned) > time.Minute && s.State != "" {
		if at := w.machine.WakeAt(); at.IsZero() || at.After(w.now) {
			w.fail("engagement %d goes on %v after its source withdrew the name", w.running, w.now.Sub(w.orphaned))
		}
	}
}
