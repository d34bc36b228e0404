package engagement

import (
	"cmp"
	"slices"
	"time"

	"github.com/tributary-fleet/tributary/backends"
)

// Timing are the durations and counts that a Machine goes by.
type Timing struct {
	// BackoffBase and BackoffMax bound the wait after a failed attempt: a random time between nothing and
	// min(BackoffMax, BackoffBase·2^failures). Defaults 1s and 5m.
	BackoffBase, BackoffMax time.Duration
	// ProbeInterval is the time between two probes of an engaged cluster. Default 10s.
	ProbeInterval time.Duration
	// ProbeFailures is how many probes in a row must fail for the cluster to be disengaged. Default 5.
	ProbeFailures int
	// ProofInterval is the time between two proofs of a candidate that does not serve. Default 5m.
	ProofInterval time.Duration
	// FailBack is how long a candidate that had failed must have been well again before it takes over from one that
	// serves. Default 1m.
	FailBack time.Duration
	// HandoverTimeout is how long an engagement goes on whose source has withdrawn the name, while another source
	// lists it and is not ready. Default 1m.
	HandoverTimeout time.Duration
}

func (t Timing) withDefaults() Timing {
	t.BackoffBase = cmp.Or(t.BackoffBase, time.Second)
	t.BackoffMax = cmp.Or(t.BackoffMax, 5*time.Minute)
	t.ProbeInterval = cmp.Or(t.ProbeInterval, 10*time.Second)
	t.ProbeFailures = cmp.Or(t.ProbeFailures, 5)
	t.ProofInterval = cmp.Or(t.ProofInterval, 5*time.Minute)
	t.FailBack = cmp.Or(t.FailBack, time.Minute)
	t.HandoverTimeout = cmp.Or(t.HandoverTimeout, time.Minute)
	return t
}

// backoff is the wait after the given number of failures (≥ 1), with full jitter in [0,1). A tenth of the
// base is the least, so that a jitter of nothing does not make a busy loop.
func (t Timing) backoff(failures int, jitter float64) time.Duration {
	limit := t.BackoffBase
	for range failures - 1 {
		if limit *= 2; limit >= t.BackoffMax {
			break
		}
	}
	limit = min(limit, t.BackoffMax)
	return max(t.BackoffBase/10, time.Duration(jitter*float64(limit)))
}

// Machine is the life of one public name. It is not safe for concurrent use.
//
// Every event first changes what the machine knows; then decide compares that with what should be and
// returns the difference as actions. So a lost or repeated event costs nothing but time.
type Machine struct {
	timing Timing

	// candidates are what sources say of the name now, in order of precedence.
	candidates []*candidate
	// current is the engagement that serves the name; nil if there is none.
	current *running
	// served is what the last engagement ran upon, and tells which cluster the name stands for while its source
	// lists it.
	served Link
	// orphaned is since when the source of the current engagement does not list the name any longer.
	orphaned time.Time
	// standby says that engagements are not handed to controllers yet.
	standby bool
	// claim is what is known of other names that lead to the same cluster.
	claim claim
	// attempt is the connection being made; nil if there is none. There is never more than one.
	attempt *attempt
	// draining are the engagements that were disengaged and have not come to their end.
	draining map[uint64]bool

	lastGeneration, lastEngagement uint64

	// lost is set from the moment an engaged cluster is lost until it is engaged again, or gone.
	lost bool
	// gone is why the last candidate left.
	gone backends.Reason

	status Status
	wake   time.Time
}

// claim is how a name stands to others that lead to the same cluster.
type claim struct {
	uid      string // the cluster's
	first    string // the one that comes first in order; empty if that is this one
	others   int    // how many there are, if this one comes first
	shadowed bool   // the first serves the cluster instead
}

// running is the engagement that serves the name.
type running struct {
	id, generation uint64
	link           Link // in force
	handedOver     bool // Engage has returned
	synced         bool
	watches        WatchesChanged
	// fallback: a source before the one that it was engaged for listed the name, and was down.
	fallback bool

	probing   bool
	nextProbe time.Time
	failures  int // probes failed in a row
	failure   Failure
}

// attempt is a connection being made.
type attempt struct {
	generation uint64
	link       Link   // without Facts
	running    uint64 // the engagement that ran when it began, or 0
	swapOnly   bool
}

// NewMachine returns a Machine for a name that nobody has declared yet.
func NewMachine(timing Timing) *Machine {
	return &Machine{timing: timing.withDefaults(), draining: map[uint64]bool{}}
}

// Step takes one event and returns what is to be done, in order.
func (m *Machine) Step(now time.Time, event Event) []Action {
	actions := m.note(now, event)
	actions = append(actions, m.decide(now)...)
	m.show(now)
	m.wake = m.nextWake(now)
	return actions
}

// note changes what the machine knows. It returns only those actions that the event itself calls for.
func (m *Machine) note(now time.Time, event Event) []Action {
	switch e := event.(type) {
	case Declared:
		c := m.candidate(e.Source)
		if c.hold != nil || !c.cluster.SameAccess(e.Cluster) {
			c.retry, c.setbacks, c.proof = retry{}, 0, proof{}
			m.reconsider()
		}
		c.cluster, c.hold = e.Cluster, nil
		if m.inForce(c) {
			m.current.link.Hints = e.Cluster.Hints
		}
	case Held:
		c := m.candidate(e.Source)
		c.hold = &e.Hold
		c.cluster.Name, c.cluster.Info, c.cluster.Source, c.cluster.Hints = e.Name, e.Hold.Info, e.Hold.Source, e.Hold.Hints
	case Withdrawn:
		if m.bySource(e.Source) == nil {
			return nil
		}
		m.candidates = slices.DeleteFunc(m.candidates, func(c *candidate) bool { return c.source.Name == e.Source })
		m.gone = e.Reason
		m.reconsider()
		if m.served.Source == e.Source {
			m.served = Link{}
		}
		if m.current != nil && m.current.link.Source == e.Source {
			m.orphaned = now
		}
	case Ranked:
		if c := m.bySource(e.Source.Name); c != nil {
			c.source = e.Source
			m.sort()
			if m.current != nil && m.current.link.Source == m.candidates[0].source.Name {
				m.current.fallback = false
			}
		}
	case Claimed:
		m.claim = claim{e.UID, e.First, e.Others, e.Shadowed}
	case Led:
		m.standby = false
	case Connected:
		return m.connected(now, e)
	case ConnectFailed:
		if m.attempt == nil || m.attempt.generation != e.Generation {
			return nil
		}
		if c := m.bySource(m.attempt.link.Source); c != nil {
			m.failed(c, now, e.Failure, e.Jitter)
		}
		m.attempt = nil
	case EngageReturned:
		if m.current == nil || m.current.id != e.Engagement {
			return nil
		}
		m.current.handedOver = true
		if e.Failure != nil {
			return m.lose(now, *e.Failure, e.Jitter)
		}
	case Synced:
		if r := m.current; r != nil && r.id == e.Engagement {
			r.synced = true
			if c := m.bySource(r.link.Source); c != nil {
				c.setbacks = 0
			}
		}
	case Probed:
		return m.probed(now, e)
	case WatchesChanged:
		if m.current != nil && m.current.id == e.Engagement && e.Order > m.current.watches.Order {
			m.current.watches = e
		}
	case Unauthorized:
		// Do not wait for the next probe to learn whether the credential is dead.
		if r := m.current; r != nil && r.id == e.Engagement && r.generation == e.Generation && !r.probing && r.failures == 0 {
			r.nextProbe = now
		}
	case Stopped:
		if m.current != nil && m.current.id == e.Engagement {
			return m.lose(now, e.Failure, e.Jitter)
		}
	case Drained:
		delete(m.draining, e.Engagement)
	case Tick:
	}
	return nil
}

// reconsider forgets that another name serves the cluster: the name may lead elsewhere now.
func (m *Machine) reconsider() {
	if m.claim.shadowed {
		m.claim = claim{}
	}
}

// connected puts a proved connection in force: under a new engagement, or under the one that runs. One that is not
// to serve, or may not take over, has told what it was asked for, and is closed.
func (m *Machine) connected(now time.Time, e Connected) []Action {
	if m.attempt == nil || m.attempt.generation != e.Generation {
		return []Action{Discard{e.Generation}}
	}
	a, old := m.attempt, m.current
	m.attempt = nil
	if a.running != 0 && (old == nil || old.id != a.running) {
		// The engagement that it was meant for has ended meanwhile: decide starts another attempt, in its time.
		return []Action{Discard{e.Generation}}
	}
	a.link.Facts = e.Facts
	c := m.bySource(a.link.Source) // listed, or the attempt would have been cancelled
	m.proved(c, now, a)
	if want, _ := m.target(now); want != c {
		return []Action{Discard{e.Generation}}
	}
	switch {
	case old != nil && e.SwapOnly == old.id && CanSwap(old.link, a.link):
		if a.link.Facts.UID == "" {
			a.link.Facts.UID = old.link.Facts.UID // this user may not ask; whoever asked before knows it
		}
		if from := m.serving(); from != nil && from != c && old.failures > 0 {
			m.failed(from, now, old.failure, e.Jitter) // it is not to take over again at once
		}
		old.generation, old.link, old.failures = a.generation, a.link, 0
		m.serves(c)
		return []Action{Swap{old.id, a.generation}}
	case e.SwapOnly != 0 || a.swapOnly: // more has become possible meanwhile: decide starts another attempt
		return []Action{Discard{e.Generation}}
	case old != nil:
		// Make before break: the new connection is proved, so the name never goes without a cluster.
		return append(m.end(backends.ReasonReplaced), m.engage(now, c, a, e)...)
	default:
		return m.engage(now, c, a, e)
	}
}

func (m *Machine) engage(now time.Time, c *candidate, a *attempt, e Connected) []Action {
	m.lastEngagement++
	m.lost = false
	m.current = &running{
		id: m.lastEngagement, generation: a.generation, link: a.link,
		nextProbe: now.Add(time.Duration((0.5 + e.Jitter/2) * float64(m.timing.ProbeInterval))),
		fallback:  m.candidates[0] != c && m.candidates[0].hold == nil,
	}
	m.serves(c)
	return []Action{Engage{m.current.id, a.generation}}
}

func (m *Machine) probed(now time.Time, e Probed) []Action {
	r := m.current
	if r == nil || r.id != e.Engagement {
		return nil
	}
	r.probing = false
	r.nextProbe = now.Add(m.timing.ProbeInterval)
	if e.Generation != r.generation {
		return nil // it probed a connection that is no longer in force
	}
	switch {
	case e.Failure != nil:
		if e.Failure.Reason == backends.ReasonUnauthorized {
			// The cluster is there; only the credential is not good. That is certain soon.
			r.nextProbe = now.Add(m.timing.ProbeInterval / 10)
		}
		r.failures++
		r.failure = *e.Failure
		if r.failures >= m.timing.ProbeFailures {
			return m.lose(now, *e.Failure, e.Jitter)
		}
	case e.UID != "" && r.link.Facts.UID == "":
		r.link.Facts.UID, r.failures = e.UID, 0
		m.served = r.link
	case e.UID != "" && e.UID != r.link.Facts.UID:
		// Another cluster answers at the address. Its objects must never mix with those in the caches.
		return m.lose(now, Failure{backends.ReasonReplaced, "another cluster answers at this address"}, 0)
	default:
		r.failures = 0
	}
	return nil
}

// lose ends the engagement because of a failure, and has its source tried again after a while.
func (m *Machine) lose(now time.Time, f Failure, jitter float64) []Action {
	if c := m.bySource(m.current.link.Source); c != nil {
		if !m.current.synced {
			c.setbacks++
			c.retry.failures = max(c.retry.failures, c.setbacks-1)
		}
		m.failed(c, now, f, jitter)
	}
	m.lost = true
	return m.end(f.Reason)
}

func (m *Machine) failed(c *candidate, now time.Time, f Failure, jitter float64) {
	c.retry.failures++
	c.retry.failure = f
	c.retry.at = now.Add(m.timing.backoff(c.retry.failures, jitter))
	c.proof.down, c.proof.soundSince = true, time.Time{}
}

func (m *Machine) end(reason backends.Reason) []Action {
	id := m.current.id
	m.current = nil
	m.draining[id] = true
	return []Action{Disengage{id, reason}}
}

// decide returns what separates what is from what should be.
func (m *Machine) decide(now time.Time) (actions []Action) {
	if m.overdue(now) {
		actions = append(actions, m.end(m.gone)...)
	} else if c := m.serving(); c != nil && !c.stays() {
		// Nothing may use any longer what its source has taken back, for instance by a policy.
		actions = append(actions, m.end(c.hold.Reason)...)
	}
	want, reason := m.target(now)
	if want == nil && m.current != nil {
		actions = append(actions, m.end(reason)...)
		want, _ = m.target(now) // the name may have become free for another
	}
	switch {
	case want == nil:
		m.lost = false
		actions = m.abandon(actions)
	case want.hold != nil, // the engagement is kept as it is
		m.inForce(want):
		actions = m.prove(actions, now)
	default:
		actions = m.pursue(actions, now, want)
	}
	if r := m.current; r != nil && !r.probing && !now.Before(r.nextProbe) {
		r.probing = true
		actions = append(actions, Probe{r.id, r.generation})
	}
	return actions
}

// inForce reports whether the engagement runs upon the candidate's connection.
func (m *Machine) inForce(c *candidate) bool {
	return m.current != nil && m.current.link.Source == c.source.Name && m.current.link.leadsAs(c.cluster)
}

// abandon cancels the attempt, if there is one.
func (m *Machine) abandon(actions []Action) []Action {
	if m.attempt == nil {
		return actions
	}
	actions = append(actions, CancelConnect{m.attempt.generation})
	m.attempt = nil
	return actions
}

// pursue makes sure that the one attempt that runs, or is waited for, is the candidate's.
func (m *Machine) pursue(actions []Action, now time.Time, c *candidate) []Action {
	if a := m.attempt; a != nil {
		if a.upon(c) {
			return actions
		}
		actions = m.abandon(actions)
	}
	if now.Before(c.retry.at) {
		return actions
	}
	return m.connect(actions, c, m.current != nil && !m.mayReplace(c))
}

func (m *Machine) connect(actions []Action, c *candidate, swapOnly bool) []Action {
	m.lastGeneration++
	link := Link{Source: c.source.Name, Connection: c.cluster.Connection, Running: c.cluster.Running, Hints: c.cluster.Hints}
	connect := Connect{Generation: m.lastGeneration, Link: link, SwapOnly: swapOnly}
	if m.current != nil {
		connect.Running, connect.RunningLink = m.current.id, m.current.link
	}
	m.attempt = &attempt{m.lastGeneration, link, connect.Running, swapOnly}
	return append(actions, connect)
}

// upon reports whether the attempt is made upon what the candidate says.
func (a *attempt) upon(c *candidate) bool {
	return a.link.Source == c.source.Name && a.link.leadsAs(c.cluster)
}

// WakeAt returns when the machine wants its next Tick; the zero time if it waits for events alone.
func (m *Machine) WakeAt() time.Time { return m.wake }

func (m *Machine) nextWake(now time.Time) time.Time {
	at := m.appointment(now)
	if r := m.current; r != nil && !r.probing && (at.IsZero() || r.nextProbe.Before(at)) {
		at = r.nextProbe
	}
	return at
}

// Idle reports whether the name is unknown and nothing of it is left: the machine can be forgotten.
func (m *Machine) Idle() bool {
	return len(m.candidates) == 0 && m.current == nil && m.attempt == nil && len(m.draining) == 0
}
