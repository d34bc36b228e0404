package engagement

import (
	"cmp"
	"slices"
	"time"

	"github.com/tributary-fleet/tributary/backends"
)

// candidate is what one source says.
type candidate struct {
	source  Source
	cluster backends.Cluster
	hold    *backends.Hold // nil: to be engaged
	retry   retry
	proof   proof
	// setbacks counts the engagements upon the present connection that ended before they had synced, in a row:
	// connecting to such a cluster works, and is no reason to begin anew with the backoff.
	setbacks int
}

// retry is how attempts upon a candidate's present connection have fared. A changed connection resets it.
type retry struct {
	failures int
	at       time.Time // no attempt before
	failure  Failure
}

// proof is what attempts have shown of a candidate's present connection, whether it serves or not.
type proof struct {
	at      time.Time // of the last good one; zero: none
	facts   Facts
	verdict verdict // what would become of the name if the candidate took it over
	about   uint64  // the engagement that the verdict is about; 0: none ran
	// down: an attempt has failed, or an engagement was lost, and the candidate has not served since. soundSince is
	// when it was first well again; zero while it is not.
	down       bool
	soundSince time.Time
}

// candidate returns the source's candidate, which it adds in its place if need be.
func (m *Machine) candidate(s Source) *candidate {
	c := m.bySource(s.Name)
	if c == nil {
		c = &candidate{}
		m.candidates = append(m.candidates, c)
	}
	c.source = s
	m.sort()
	return c
}

func (m *Machine) sort() {
	slices.SortStableFunc(m.candidates, func(a, b *candidate) int { return cmp.Compare(a.source.Rank, b.source.Rank) })
}

func (m *Machine) bySource(name string) *candidate {
	for _, c := range m.candidates {
		if c.source.Name == name {
			return c
		}
	}
	return nil
}

// serving returns the candidate that the engagement runs for; nil without an engagement, or if its source has
// withdrawn the name.
func (m *Machine) serving() *candidate {
	if m.current == nil {
		return nil
	}
	return m.bySource(m.current.link.Source)
}

// target returns the candidate that is to serve the name, or else why there is none. The one that serves, if any, may
// go on.
//
// While an engagement runs that its source stands by, that is the first in order that runs, or is fit to take over;
// otherwise the first that has not failed, or else the one whose turn to be tried again comes first.
func (m *Machine) target(now time.Time) (*candidate, backends.Reason) {
	if m.claim.shadowed {
		return nil, backends.ReasonDuplicate
	}
	reason := m.gone
	serving := m.serving()
	var best, leaving *candidate
	for i, c := range m.candidates {
		switch {
		case c.hold != nil && i == 0 && (!c.hold.Keep || c != serving):
			reason = c.hold.Reason
		case c.hold != nil && c.hold.Keep && c == serving:
			if c.hold.Reason != backends.ReasonMoving && c.hold.Reason != backends.ReasonVanished {
				return c, ""
			}
			leaving = c // to the next one that is fit, if there is one
		case c.hold != nil:
		case c == serving:
			if m.current.failures < failingProbes {
				return c, ""
			}
			leaving = c
		case m.barred(c, now):
		case serving != nil:
			if c.recovered(now, m.timing.FailBack) {
				return c, ""
			}
		case m.current == nil && now.Before(c.source.NotBefore):
		case best == nil || best.retry.failures > 0 && (c.retry.failures == 0 || c.retry.at.Before(best.retry.at)):
			best = c
		}
	}
	if best == nil {
		best = leaving
	}
	if best != nil {
		return best, ""
	}
	return nil, reason
}

// failingProbes is how many probes in a row must fail for another candidate to take over, if one is fit.
const failingProbes = 2

// stays reports whether a candidate may go on serving.
func (c *candidate) stays() bool { return c.hold == nil || c.hold.Keep }

// recovered reports whether the candidate has never failed, or has been well for long enough since.
func (c *candidate) recovered(now time.Time, after time.Duration) bool {
	return !c.proof.down || !c.proof.soundSince.IsZero() && !now.Before(c.proof.soundSince.Add(after))
}

// anchor returns the link that tells which cluster the name stands for, while the source that led to it lists it.
func (m *Machine) anchor() (Link, bool) {
	link := m.served
	if m.current != nil {
		link = m.current.link
	}
	return link, m.bySource(link.Source) != nil
}

// mayReplace reports whether the candidate may take the name over even from another cluster.
func (m *Machine) mayReplace(c *candidate) bool {
	anchor, ok := m.anchor()
	if !ok || anchor.Source == c.source.Name || c.source.Replace {
		return true
	}
	// What serves only because the candidates before it were down has no right to the name against them.
	return m.current != nil && m.current.fallback && c.source.Rank < m.bySource(anchor.Source).source.Rank
}

// barred reports whether the candidate is known to be unable to take the name over.
func (m *Machine) barred(c *candidate, now time.Time) bool {
	p := c.proof
	switch {
	case p.verdict == verdictNone || p.verdict == verdictReady || m.mayReplace(c) || !now.Before(p.at.Add(m.timing.ProofInterval)):
		return false
	case m.current != nil:
		return p.about == m.current.id
	default:
		return !p.verdict.leadsToSame()
	}
}

// proved takes note of a good proof.
func (m *Machine) proved(c *candidate, now time.Time, a *attempt) {
	c.retry = retry{}
	p := proof{at: now, facts: a.link.Facts, down: c.proof.down, soundSince: c.proof.soundSince}
	if p.down && p.soundSince.IsZero() {
		p.soundSince = now
	}
	anchor, anchored := m.anchor()
	if m.current != nil {
		p.about = a.running
	}
	if anchored && anchor.Source != c.source.Name && p.about == a.running {
		p.verdict = judge(anchor, a.link)
		if p.verdict == verdictRights && m.current == nil {
			p.verdict = verdictNone // nothing was being watched, so nobody was asked
		}
	}
	c.proof = p
}

// serves takes note that the engagement runs upon the candidate's connection now.
func (m *Machine) serves(c *candidate) {
	m.served, m.orphaned = m.current.link, time.Time{}
	m.current.fallback = m.current.fallback && m.candidates[0] != c
	c.proof.down, c.proof.soundSince = false, time.Time{}
}

// overdue reports whether the engagement has gone on for too long after its source withdrew the name.
func (m *Machine) overdue(now time.Time) bool {
	return m.current != nil && m.serving() == nil && !now.Before(m.orphaned.Add(m.timing.HandoverTimeout))
}

// prove has the candidates that do not serve proved, one after the other: so it is known beforehand what would
// become of the name.
func (m *Machine) prove(actions []Action, now time.Time) []Action {
	if m.attempt != nil {
		c := m.bySource(m.attempt.link.Source)
		if c != nil && c.hold == nil && m.attempt.upon(c) && c != m.serving() {
			return actions
		}
		actions = m.abandon(actions)
	}
	for _, c := range m.candidates {
		if at, wanted := m.nextProof(c); wanted && !now.Before(at) {
			return m.connect(actions, c, true)
		}
	}
	return actions
}

// nextProof returns when the candidate is to be proved in the background, if at all: not before the engagement
// has synced, which is more urgent.
func (m *Machine) nextProof(c *candidate) (at time.Time, wanted bool) {
	switch {
	case m.current == nil || !m.current.synced || c.hold != nil || c == m.serving():
		return time.Time{}, false
	case c.retry.failures > 0:
		return c.retry.at, true
	case c.proof.at.IsZero() || c.proof.about != m.current.id:
		return time.Time{}, true
	default:
		return c.proof.at.Add(m.timing.ProofInterval), true
	}
}

// appointment returns when candidates have something to be done next, besides what runs; zero if never.
func (m *Machine) appointment(now time.Time) (next time.Time) {
	at := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if m.current != nil && m.serving() == nil {
		at(m.orphaned.Add(m.timing.HandoverTimeout))
	}
	want, _ := m.target(now)
	pursued := want != nil && want.hold == nil && !m.inForce(want)
	for _, c := range m.candidates {
		if m.attempt == nil {
			if proof, wanted := m.nextProof(c); wanted && !pursued {
				at(proof)
			}
			if c == want && pursued {
				at(c.retry.at)
			}
		}
		if m.current == nil {
			at(c.source.NotBefore)
		} else if c.proof.down && !c.proof.soundSince.IsZero() {
			at(c.proof.soundSince.Add(m.timing.FailBack))
		}
		if m.barred(c, now) {
			at(c.proof.at.Add(m.timing.ProofInterval))
		}
	}
	return next
}
