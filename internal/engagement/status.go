package engagement

import (
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
}

// Status returns what people are told about the name.
func (m *Machine) Status() Status { return m.status }

// show brings the status up to date after a step.
func (m *Machine) show(now time.Time) {
	s := m.describe()
	if s.State == m.status.State {
		s.Since = m.status.Since
	} else {
		s.Since = now
	}
	m.status = s
}

func (m *Machine) describe() Status {
	c, _ := m.target()
	if c == nil && len(m.candidates) > 0 {
		c = m.candidates[0]
	}
	if c == nil {
		return Status{State: backends.Draining, Reason: m.gone, Cluster: m.status.Cluster, Source: m.status.Source}
	}
	s := Status{Source: c.source.Name, Cluster: c.cluster}
	if c.hold == nil && c.retry.failures > 0 {
		s.Attempt = c.retry.failures
		if m.attempt == nil {
			s.NextTry = c.retry.at
		}
	}
	if r := m.current; r != nil {
		s.Version, s.UID, s.User = r.link.Facts.Version, r.link.Facts.UID, r.link.Facts.User
		s.State, s.Reason, s.Message = m.describeRunning(r, c)
		return s
	}
	switch {
	case c.hold != nil && c.hold.Rejected:
		s.State, s.Reason, s.Message = backends.Rejected, c.hold.Reason, c.hold.Message
	case c.hold != nil:
		s.State, s.Reason, s.Message = backends.Pending, c.hold.Reason, c.hold.Message
	default:
		s.State, s.Reason = backends.Connecting, backends.ReasonConnecting
		if m.lost {
			s.State = backends.Disconnected
		}
		if c.retry.failures > 0 {
			s.Reason, s.Message = c.retry.failure.Reason, c.retry.failure.Message
		}
	}
	return s
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
	case !r.handedOver || !r.synced:
		return backends.Engaged, backends.ReasonSyncing, ""
	default:
		return backends.Engaged, backends.ReasonReady, r.watches.Pending
	}
}

// same reports whether both tell the same.
func (s Status) same(o Status) bool {
	return s.Source == o.Source && s.State == o.State && s.Reason == o.Reason && s.Message == o.Message &&
		s.Since.Equal(o.Since) && s.Attempt == o.Attempt && s.NextTry.Equal(o.NextTry) &&
		s.Version == o.Version && s.UID == o.UID && s.User == o.User && s.Cluster.Equal(o.Cluster)
}
