package kubeconfig

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// members decides what is said about the members of files. It knows no clock and reads nothing.
type members struct {
	engager backends.Engager
	holdFor time.Duration
	settle  time.Duration

	known  map[string]*fileMember
	health backends.Health
	synced bool
	away   time.Time // since when a place has been unreadable
}

// fileMember is what was said about a member last. Either field is set.
type fileMember struct {
	engaged *backends.Cluster
	held    *backends.Hold
	file    string // where it was seen
	good    bool   // it has been engaged by this run

	worse time.Time // since when it has been broken or gone without that being believed
	bad   time.Time // since when it is held for a connection that worked earlier
}

// wanted is what a reading says about a member.
type wanted struct {
	cluster *backends.Cluster
	hold    *backends.Hold // Keep: for a bounded time
	file    string
}

// next says what is to be said after a reading, and returns when to read again at the latest; zero if nothing is due.
func (m *members) next(now time.Time, s seen) (again time.Time) {
	if m.known == nil {
		m.known = map[string]*fileMember{}
	}
	m.report(s.unknown)
	due := func(t time.Time) {
		if again.IsZero() || t.Before(again) {
			again = t
		}
	}
	want := m.wanted(s)
	for _, name := range slices.Sorted(maps.Keys(m.known)) {
		if _, ok := want[name]; ok {
			continue
		}
		if u, unknown := placeOf(s.unknown, m.known[name].file); unknown && !m.expired(now, m.known[name]) {
			want[name] = wanted{file: m.known[name].file, hold: &backends.Hold{
				Reason: backends.ReasonFilesUnreadable, Message: u.message, Keep: true,
				Source: backends.ObjectReference{File: m.known[name].file}}}
		} else if m.believe(now, m.known[name], due) {
			delete(m.known, name)
			m.engager.Disengage(name, backends.ReasonDeleted)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		m.say(now, name, want[name], due)
	}
	m.sync(now, s, due)
	return again
}

// report says how the inventory is doing.
func (m *members) report(unknown []unreadablePlace) {
	var health backends.Health
	if len(unknown) > 0 {
		health = backends.Health{Reason: backends.ReasonFilesUnreadable, Message: unknown[0].message}
	}
	if health != m.health {
		m.health = health
		m.engager.Report(health)
	}
}

// sync calls Synced once everything is known. A folder that is not there is waited for, but not for ever.
func (m *members) sync(now time.Time, s seen, due func(time.Time)) {
	if m.synced {
		return
	}
	if len(s.unknown) > 0 && m.holdFor > 0 {
		if m.away.IsZero() {
			m.away = now
		}
		if until := m.away.Add(m.holdFor); now.Before(until) {
			due(until)
			return
		}
	}
	m.synced = true
	m.engager.Synced()
}

// wanted returns what the files say.
func (m *members) wanted(s seen) map[string]wanted {
	want := map[string]wanted{}
	for _, file := range s.files {
		if file.err != nil {
			m.broken(want, file)
			continue
		}
		for _, c := range file.contexts {
			info := backends.Info{DisplayName: c.Name}
			if first, taken := want[c.member]; taken {
				want[c.fallback] = wanted{file: file.path, hold: &backends.Hold{
					Reason: backends.ReasonNameConflict, Rejected: true, Info: info, Source: file.source(),
					Message: "the name " + c.member + " is taken by " + first.file}}
				continue
			}
			if c.Err != nil {
				hold := holdFor(c.Err)
				hold.Info, hold.Source = info, file.source()
				want[c.member] = wanted{file: file.path, hold: &hold}
				continue
			}
			want[c.member] = wanted{file: file.path, cluster: &backends.Cluster{
				Name: c.member, Connection: c.Spec, Info: info, Source: file.source()}}
		}
	}
	return want
}

// broken adds what a file means that cannot be read as a whole: trouble for every member that was in it, or for one in
// its own name if none was.
func (m *members) broken(want map[string]wanted, file *readFile) {
	hold := holdFor(file.err)
	hold.Message = file.path + ": " + hold.Message
	hold.Source = file.source()
	any := false
	for name, member := range m.known {
		if _, taken := want[name]; member.file != file.path || taken {
			continue
		}
		own := hold
		if member.engaged != nil {
			own.Info = member.engaged.Info
		} else {
			own.Info = member.held.Info
		}
		want[name] = wanted{file: file.path, hold: &own}
		any = true
	}
	if any {
		return
	}
	name := file.name
	if _, taken := want[name]; taken {
		name = file.path
	}
	want[name] = wanted{file: file.path, hold: &hold}
}

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

// placeOf returns the unreadable place that a file lies in.
func placeOf(unknown []unreadablePlace, file string) (unreadablePlace, bool) {
	for _, u := range unknown {
		if u.holds(file) {
			return u, true
		}
	}
	return unreadablePlace{}, false
}

// say says what is wanted of a member, unless that was said already.
func (m *members) say(now time.Time, name string, want wanted, due func(time.Time)) {
	member := m.known[name]
	if member == nil {
		member = &fileMember{}
	}
	if want.cluster != nil {
		m.known[name] = member
		member.good = true
		member.file, member.held, member.worse, member.bad = want.file, nil, time.Time{}, time.Time{}
		if member.engaged == nil || !member.engaged.Equal(*want.cluster) {
			member.engaged = want.cluster
			m.engager.Engage(*want.cluster)
		}
		return
	}
	hold := *want.hold
	if hold.Keep {
		if !m.believe(now, member, due) {
			return
		}
		if member.bad.IsZero() {
			member.bad = now
			if !member.worse.IsZero() {
				member.bad = member.worse
			}
		}
		until := member.bad.Add(m.holdFor)
		if hold.Keep = now.Before(until); hold.Keep {
			due(until)
		}
		if hold.Keep && member.good {
			hold.Message += "; the last good connection is held until " + until.UTC().Format(time.RFC3339)
		}
	}
	m.known[name] = member
	member.file = want.file
	if member.held == nil || !sameHold(*member.held, hold) {
		member.engaged, member.held = nil, &hold
		m.engager.Hold(name, hold)
	}
}

// believe reports whether a member that looks broken or gone has looked so for long enough.
func (m *members) believe(now time.Time, member *fileMember, due func(time.Time)) bool {
	if member.engaged == nil {
		return true // it is known to be in trouble, or was never well
	}
	if member.worse.IsZero() {
		member.worse = now
	}
	if until := member.worse.Add(m.settle); now.Before(until) {
		due(until)
		return false
	}
	return true
}

// expired reports whether a member has been in trouble for as long as its last good connection may be held.
func (m *members) expired(now time.Time, member *fileMember) bool {
	return m.holdFor < 0 || !member.bad.IsZero() && !now.Before(member.bad.Add(m.holdFor))
}

func sameHold(a, b backends.Hold) bool {
	return a.Reason == b.Reason && a.Message == b.Message && a.Rejected == b.Rejected && a.Keep == b.Keep &&
		a.Source == b.Source && a.Hints == b.Hints && a.Info.Equal(b.Info)
}
