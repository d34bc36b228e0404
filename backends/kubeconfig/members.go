package kubeconfig

import (
	"errors"
	"time"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// members says to an Engager what is wanted of members, when it differs from what was said before and has been so for
// long enough. It knows no clock. It is for one goroutine.
type members struct {
	engager backends.Engager
	holdFor time.Duration
	settle  time.Duration

	known map[string]*member // never nil
}

// member is what was said about a member last. Either of engaged and held is set.
type member struct {
	engaged *backends.Cluster
	held    *backends.Hold
	origin  string // the file or Secret that it is in
	good    bool   // it was engaged by this run, and may be still

	worse time.Time // since when it has been broken or gone without that being believed
	bad   time.Time // since when it is held for a connection that worked earlier
}

// info is what was said to reconcilers last.
func (m *member) info() backends.Info {
	if m.engaged != nil {
		return m.engaged.Info
	}
	return m.held.Info
}

// wanted is what is true of a member now. Either of cluster and hold is set.
type wanted struct {
	cluster *backends.Cluster
	hold    *backends.Hold // Keep: for a bounded time
	origin  string
	lasting bool // what Hold.Keep says has no bound: nothing is known of the cluster
}

// due takes a time at which the members have to be looked at again.
type due func(time.Time)

// holdFor words why a file or context cannot be used.
func holdFor(err error) backends.Hold {
	hold := backends.Hold{Reason: backends.ReasonFilesUnreadable, Message: err.Error(), Rejected: true, Keep: true}
	var refused *connection.PolicyError
	var unusable *connection.ParseError
	switch {
	case errors.As(err, &refused):
		hold.Reason, hold.Keep = backends.ReasonPolicyViolation, false
	case errors.As(err, &unusable):
		hold.Reason = backends.ReasonInvalidKubeconfig
	}
	return hold
}

// say says what is wanted of a member, unless that was said already.
func (m *members) say(now time.Time, name string, want wanted, due due) {
	one := m.known[name]
	if one == nil {
		one = &member{}
	}
	if want.cluster != nil {
		m.known[name] = one
		one.good = true
		one.origin, one.held, one.worse, one.bad = want.origin, nil, time.Time{}, time.Time{}
		if one.engaged == nil || !one.engaged.Equal(*want.cluster) {
			one.engaged = want.cluster
			m.engager.Engage(*want.cluster)
		}
		return
	}
	hold := *want.hold
	if hold.Keep {
		if !m.believe(now, one, due) {
			return
		}
	}
	if hold.Keep && !want.lasting {
		if one.bad.IsZero() {
			one.bad = now
			if !one.worse.IsZero() {
				one.bad = one.worse
			}
		}
		until := one.bad.Add(m.holdFor)
		if hold.Keep = now.Before(until); hold.Keep {
			due(until)
		}
		if hold.Keep && one.good {
			hold.Message += "; the last good connection is held until " + until.UTC().Format(time.RFC3339)
		}
	}
	m.known[name] = one
	one.origin = want.origin
	one.good = one.good && hold.Keep
	if one.held == nil || !sameHold(*one.held, hold) {
		one.engaged, one.held = nil, &hold
		m.engager.Hold(name, hold)
	}
}

// gone says that a member is in the inventory no more.
func (m *members) gone(now time.Time, name string, due due) {
	if one := m.known[name]; one != nil && m.believe(now, one, due) {
		delete(m.known, name)
		m.engager.Disengage(name, backends.ReasonDeleted)
	}
}

// believe reports whether a member that looks broken or gone has looked so for long enough.
func (m *members) believe(now time.Time, one *member, due due) bool {
	if one.engaged == nil {
		return true // it is known to be in trouble, or was never well
	}
	if one.worse.IsZero() {
		one.worse = now
	}
	if until := one.worse.Add(m.settle); now.Before(until) {
		due(until)
		return false
	}
	return true
}

func sameHold(a, b backends.Hold) bool {
	return a.Reason == b.Reason && a.Message == b.Message && a.Rejected == b.Rejected && a.Keep == b.Keep &&
		a.Source == b.Source && a.Hints == b.Hints && a.Info.Equal(b.Info)
}
