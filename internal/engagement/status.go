package engagement

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tributary-fleet/tributary/backends"
)

// Status is what people are told about one public name. It holds no secret.
type Status struct {
	// Source is the backend that serves the name, or would; empty once the last one has withdrawn it.
	Source string
	State  backends.State
	Reason backends.Reason
	// Message explains the reason to a person.
	Message string
	// Since is when State was entered.
	Since time.Time
	// Attempt counts the failed attempts to connect in a row; NextTry is when the next one starts. Both are
	// zero when nothing is being retried.
	Attempt int
	NextTry time.Time
	// Version, UID and User are what the cluster says of itself; empty before the first connection.
	Version, UID, User string
	// Cluster is what the inventory says.
	Cluster backends.Cluster
	// First is the first in order of the names that lead to the same cluster; empty if there is one alone, or this
	// is it.
	First string
	// Candidates are all sources that list the name, in order of precedence; nil if there is only one.
	Candidates []CandidateStatus
}

// CandidateStatus tells how one of several sources of a name stands.
type CandidateStatus struct {
	// Source lists the cluster as Member.
	Source, Member string
	// State is that of the name for the one that serves it. For another, it is Shadowed if it could be engaged, else
	// Pending, Rejected, Connecting or Disconnected.
	State  backends.State
	Reason backends.Reason
	// Message explains the reason to a person.
	Message string
	// UID is the cluster's identity as the candidate's connection last showed it; Proved is when that was.
	UID    string
	Proved time.Time
}

// Status returns what people are told about the name.
func (m *Machine) Status() Status { return m.status }

// show brings the status up to date after a step.
func (m *Machine) show(now time.Time) {
	s := m.describe(now)
	if s.State == m.status.State {
		s.Since = m.status.Since
	} else {
		s.Since = now
	}
	m.status = s
}

func (m *Machine) describe(now time.Time) Status {
	c := m.serving()
	if c == nil {
		c, _ = m.target(now)
	}
	if c == nil && len(m.candidates) > 0 {
		c = m.candidates[0]
	}
	if c == nil {
		return Status{State: backends.Draining, Reason: m.gone, Cluster: m.status.Cluster, Source: m.status.Source}
	}
	s := Status{Source: c.source.Name, Cluster: c.cluster, First: m.claim.first}
	if c.hold == nil && c.retry.failures > 0 {
		s.Attempt = c.retry.failures
		if m.attempt == nil {
			s.NextTry = c.retry.at
		}
	}
	switch r := m.current; {
	case r != nil:
		s.Version, s.UID, s.User = r.link.Facts.Version, r.link.Facts.UID, r.link.Facts.User
		s.State, s.Reason, s.Message = m.describeRunning(r, c)
	case m.claim.shadowed:
		s.State, s.Reason, s.Message = backends.Shadowed, backends.ReasonDuplicate, "the cluster is served as "+m.claim.first
		s.UID = m.claim.uid
	default:
		s.State, s.Reason, s.Message = m.describeIdle(c, m.lost)
	}
	if len(m.candidates) > 1 {
		s.Candidates = make([]CandidateStatus, len(m.candidates))
		for i, other := range m.candidates {
			s.Candidates[i] = m.describeCandidate(other, c, s)
		}
	}
	return s
}

// describeIdle tells how a candidate is doing for which no engagement runs.
func (m *Machine) describeIdle(c *candidate, lost bool) (backends.State, backends.Reason, string) {
	switch {
	case c.hold != nil && c.hold.Rejected:
		return backends.Rejected, c.hold.Reason, c.hold.Message
	case c.hold != nil:
		return backends.Pending, c.hold.Reason, c.hold.Message
	}
	state, reason, message := backends.Connecting, backends.ReasonConnecting, ""
	if lost {
		state = backends.Disconnected
	}
	if c.retry.failures > 0 {
		reason, message = c.retry.failure.Reason, c.retry.failure.Message
	}
	return state, reason, message
}

// describeCandidate tells how one of several candidates stands. shown is the one that the name's status is about.
func (m *Machine) describeCandidate(c, shown *candidate, s Status) CandidateStatus {
	cs := CandidateStatus{Source: c.source.Name, Member: c.cluster.Name, UID: c.proof.facts.UID, Proved: c.proof.at}
	switch {
	case c == shown && (m.current == nil || c == m.serving()):
		cs.State, cs.Reason, cs.Message, cs.UID = s.State, s.Reason, s.Message, cmp.Or(s.UID, cs.UID)
	case c.hold != nil || c.retry.failures > 0:
		cs.State, cs.Reason, cs.Message = m.describeIdle(c, false)
	default:
		cs.State = backends.Shadowed
		cs.Reason, cs.Message = c.describeVerdict()
	}
	return cs
}

// describeVerdict tells what would become of the name if the candidate took it over.
func (c *candidate) describeVerdict() (backends.Reason, string) {
	switch c.proof.verdict {
	case verdictReady:
		return backends.ReasonServedByOther, ""
	case verdictOther:
		return backends.ReasonIdentityDiffers, fmt.Sprintf("backend %s leads to another cluster (kube-system UID %s)", c.source.Name, cmp.Or(c.proof.facts.UID, "unknown"))
	case verdictUnknown:
		return backends.ReasonIdentityUnknown, fmt.Sprintf("backend %s is not known to lead to the same cluster: its user may not read the namespace kube-system, and its address is another", c.source.Name)
	case verdictForeign:
		return backends.ReasonRunElsewhere, "another provider runs the cluster, so that it would have to be engaged anew"
	case verdictRights:
		return backends.ReasonInsufficientRights, fmt.Sprintf("the user of backend %s may not list and watch all that is being watched", c.source.Name)
	default:
		return backends.ReasonNotProved, ""
	}
}

// bar returns why the first candidate in order that should serve instead of the engagement cannot.
func (m *Machine) bar(serving *candidate) (backends.Reason, string, bool) {
	for _, c := range m.candidates {
		if c == serving || c.source.Rank >= serving.source.Rank {
			break
		}
		if v := c.proof.verdict; c.hold == nil && v != verdictNone && v != verdictReady && !m.mayReplace(c) {
			reason, message := c.describeVerdict()
			return reason, message, true
		}
	}
	return "", "", false
}

// describeRunning tells how the engagement is doing that serves the name for the candidate.
func (m *Machine) describeRunning(r *running, c *candidate) (backends.State, backends.Reason, string) {
	switch {
	case r.failures > 0:
		return backends.Degraded, backends.ReasonProbeFailed, r.failure.Message
	case c.hold != nil:
		return backends.Engaged, c.hold.Reason, c.hold.Message
	case c.retry.failures > 0 && c.retry.failure.Reason == backends.ReasonUnauthorized:
		return backends.Degraded, backends.ReasonCredentialRejected, c.retry.failure.Message
	case c.retry.failures > 0:
		return backends.Degraded, backends.ReasonConnectionRejected, c.retry.failure.Message
	case r.watches.Failed.Reason != "":
		return backends.Degraded, r.watches.Failed.Reason, r.watches.Failed.Message
	case m.standby:
		return backends.Engaged, backends.ReasonStandby, ""
	case !r.handedOver || !r.synced:
		return backends.Engaged, backends.ReasonSyncing, ""
	}
	if reason, message, barred := m.bar(c); barred {
		return backends.Engaged, reason, message
	}
	switch {
	case m.claim.first != "":
		return backends.Engaged, backends.ReasonDuplicate, "the same cluster as " + m.claim.first
	case m.claim.others == 1:
		return backends.Engaged, backends.ReasonDuplicate, "1 other name leads to the same cluster"
	case m.claim.others > 1:
		return backends.Engaged, backends.ReasonDuplicate, fmt.Sprintf("%d other names lead to the same cluster", m.claim.others)
	default:
		return backends.Engaged, backends.ReasonReady, r.watches.Pending
	}
}

// same reports whether both tell the same.
func (s Status) same(o Status) bool {
	return s.Source == o.Source && s.State == o.State && s.Reason == o.Reason && s.Message == o.Message &&
		s.Since.Equal(o.Since) && s.Attempt == o.Attempt && s.NextTry.Equal(o.NextTry) &&
		s.Version == o.Version && s.UID == o.UID && s.User == o.User && s.Cluster.Equal(o.Cluster) &&
		s.First == o.First && slices.Equal(s.Candidates, o.Candidates)
}
