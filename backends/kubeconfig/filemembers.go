package kubeconfig

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// fileMembers decides what is said about the members of files. It knows no clock and reads nothing.
type fileMembers struct {
	members
	health backends.Health
	synced bool
}

// next says what is to be said after a reading, and returns when to read again at the latest; zero if nothing is due.
func (m *fileMembers) next(now time.Time, s seen) (again time.Time) {
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
		if u, unknown := placeOf(s.unknown, m.known[name].origin); unknown {
			want[name] = wanted{origin: m.known[name].origin, lasting: true, hold: &backends.Hold{
				Reason: backends.ReasonFilesUnreadable, Message: u.message, Keep: true,
				Info: m.known[name].info(), Source: backends.ObjectReference{File: m.known[name].origin}}}
		} else {
			m.gone(now, name, due)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		m.say(now, name, want[name], due)
	}
	m.sync(s)
	return again
}

// report says how the inventory is doing.
func (m *fileMembers) report(unknown []unreadablePlace) {
	var health backends.Health
	if len(unknown) > 0 {
		health = backends.Health{Reason: backends.ReasonFilesUnreadable, Message: unknown[0].message}
	}
	if health != m.health {
		m.health = health
		m.engager.Report(health)
	}
}

// sync calls Synced once everything is known. What cannot be read now may be there.
func (m *fileMembers) sync(s seen) {
	unread := func(f *readFile) bool {
		return f.err != nil && holdFor(f.err).Reason == backends.ReasonFilesUnreadable &&
			!errors.Is(f.err, connection.ErrNotRegular) && !errors.Is(f.err, connection.ErrTooLarge)
	}
	if m.synced || len(s.unknown) > 0 || slices.ContainsFunc(s.files, unread) {
		return
	}
	m.synced = true
	m.engager.Synced()
}

// wanted returns what the files say.
func (m *fileMembers) wanted(s seen) map[string]wanted {
	want := map[string]wanted{}
	for _, file := range s.files {
		if file.err != nil {
			m.broken(want, file)
			continue
		}
		for _, c := range file.contexts {
			info := backends.Info{DisplayName: c.Name}
			if first, taken := want[c.member]; taken {
				want[c.fallback] = wanted{origin: file.path, hold: &backends.Hold{
					Reason: backends.ReasonNameConflict, Rejected: true, Info: info, Source: file.source(),
					Message: "the name " + c.member + " is taken by " + first.origin}}
				continue
			}
			if c.Err != nil {
				hold := holdFor(c.Err)
				hold.Info, hold.Source = info, file.source()
				want[c.member] = wanted{origin: file.path, hold: &hold}
				continue
			}
			want[c.member] = wanted{origin: file.path, cluster: &backends.Cluster{
				Name: c.member, Connection: c.Spec, Info: info, Source: file.source()}}
		}
	}
	return want
}

// broken adds what a file means that cannot be read as a whole: trouble for every member that was in it, or for one in
// its own name if none was.
func (m *fileMembers) broken(want map[string]wanted, file *readFile) {
	hold := holdFor(file.err)
	hold.Message = file.path + ": " + hold.Message
	hold.Source = file.source()
	any := false
	for name, member := range m.known {
		if _, taken := want[name]; member.origin != file.path || taken {
			continue
		}
		own := hold
		own.Info = member.info()
		want[name] = wanted{origin: file.path, hold: &own}
		any = true
	}
	if any {
		return
	}
	name := file.name
	if _, taken := want[name]; taken {
		name = file.path
	}
	want[name] = wanted{origin: file.path, hold: &hold}
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
