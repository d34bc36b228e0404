package aggregate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tributary-fleet/tributary/backends"
)

// GuardOptions configure the guard against mass disappearance. An inventory that loses most of its clusters within
// seconds has rarely lost the clusters: its CRD was deleted, its selector is wrong, what fills it is broken. So those
// clusters are held for a while, engaged as they are, before they are disengaged, and the backend's health says so.
//
// To see a mass in time, each cluster that vanishes from a backend of MinMembers or more is let go only when no other
// has vanished for a second, or after ten.
//
// The guard concerns only what an inventory no longer lists. What a policy refuses, or a cluster no longer admits, is
// disengaged at once, and so is what a backend lists that is removed.
type GuardOptions struct {
	// Off lets every cluster go that vanishes.
	Off bool
	// MinMembers is how many clusters a backend must have listed for the guard to act. Default 10.
	MinMembers int
	// Share is the part of a backend's clusters that must vanish within Window for the guard to act. Default 0.5,
	// which is to say more than half of them.
	Share float64
	// Window is the time within which they vanish. Default 30s.
	Window time.Duration
	// Hold is how long each of them is held. Default 5m.
	Hold time.Duration
}

func (o GuardOptions) withDefaults() GuardOptions {
	o.MinMembers = cmp.Or(o.MinMembers, 10)
	o.Share = cmp.Or(o.Share, 0.5)
	o.Window = cmp.Or(o.Window, 30*time.Second)
	o.Hold = cmp.Or(o.Hold, 5*time.Minute)
	return o
}

const (
	// settleQuiet and settleMax are how long a vanished cluster is waited with, to see whether it is one of many.
	settleQuiet = time.Second
	settleMax   = 10 * time.Second
)

// guard decides when clusters are let go that a backend no longer lists. It is told the time, starts nothing, and is
// not safe for concurrent use.
type guard struct {
	opts    GuardOptions
	leaving map[string]*departure // by member
	left    map[string]time.Time  // when members vanished that were let go, within the last Window
	held    mass
}

// departure is a cluster that the backend no longer lists, and that has not been let go.
type departure struct {
	reason backends.Reason
	since  time.Time
	held   bool
}

// mass is what made the guard act; zero while it does not.
type mass struct {
	vanished, of int
	until        time.Time // the last of the clusters is let go
}

// vanish takes note that the backend no longer lists a member.
func (g *guard) vanish(now time.Time, member string, reason backends.Reason) {
	if g.leaving == nil {
		g.leaving, g.left = map[string]*departure{}, map[string]time.Time{}
	}
	if d := g.leaving[member]; d != nil {
		d.reason = reason
		return
	}
	g.leaving[member] = &departure{reason: reason, since: now}
}

// back takes note that the backend lists a member, again or still.
func (g *guard) back(member string) {
	delete(g.leaving, member)
	delete(g.left, member)
	g.calm()
}

// calm ends the guard's action when it holds nothing any longer.
func (g *guard) calm() {
	for _, d := range g.leaving {
		if d.held {
			return
		}
	}
	g.held = mass{}
}

// decide returns which clusters are to be let go, and which are to be held from now on, in order of their names. listed is how many
// the backend has listed, those that are leaving among them.
func (g *guard) decide(now time.Time, listed int) (gone, held []string) {
	if len(g.leaving) == 0 {
		return nil, nil
	}
	maps.DeleteFunc(g.left, func(_ string, t time.Time) bool { return now.Sub(t) > g.opts.Window })
	small := g.opts.Off || listed+len(g.left) < g.opts.MinMembers
	if !small {
		held = g.trip(now, listed)
	}
	settled := small || !now.Before(g.settled())
	for _, member := range slices.Sorted(maps.Keys(g.leaving)) {
		switch d := g.leaving[member]; {
		case d.held && now.Before(d.since.Add(g.opts.Hold)):
		case d.held || settled:
			gone = append(gone, member)
		}
	}
	return gone, held
}

// trip returns the clusters that are to be held from now on, if the guard is to act.
func (g *guard) trip(now time.Time, listed int) (held []string) {
	recent := len(g.left)
	for _, d := range g.leaving {
		if now.Sub(d.since) <= g.opts.Window {
			recent++
		}
	}
	of := listed + len(g.left)
	if g.held == (mass{}) && float64(recent) <= g.opts.Share*float64(of) {
		return nil
	}
	for _, member := range slices.Sorted(maps.Keys(g.leaving)) {
		if d := g.leaving[member]; !d.held {
			d.held = true
			held = append(held, member)
			if until := d.since.Add(g.opts.Hold); until.After(g.held.until) {
				g.held.until = until
			}
		}
	}
	if len(held) > 0 {
		g.held.vanished, g.held.of = len(g.leaving)+len(g.left), of
	}
	return held
}

// settled is when those that are leaving, and not held, are let go.
func (g *guard) settled() (at time.Time) {
	var first, last time.Time
	for _, d := range g.leaving {
		if d.held {
			continue
		}
		if first.IsZero() || d.since.Before(first) {
			first = d.since
		}
		if d.since.After(last) {
			last = d.since
		}
	}
	if first.IsZero() {
		return first
	}
	at = last.Add(settleQuiet)
	if most := first.Add(settleMax); most.Before(at) {
		at = most
	}
	return at
}

// leave lets a cluster go, and returns why the backend no longer lists it.
func (g *guard) leave(member string) backends.Reason {
	d := g.leaving[member]
	delete(g.leaving, member)
	if !d.held {
		g.left[member] = d.since
	}
	g.calm()
	return d.reason
}

// next returns when decide is to be asked again; the zero time if not before something happens.
func (g *guard) next() time.Time {
	at := g.settled()
	for _, d := range g.leaving {
		if until := d.since.Add(g.opts.Hold); d.held && (at.IsZero() || until.Before(at)) {
			at = until
		}
	}
	return at
}

// message tells people what the guard does; empty if it does nothing.
func (g *guard) message() string {
	if g.held == (mass{}) {
		return ""
	}
	return fmt.Sprintf("%d of %d clusters vanished from the inventory within %v: those that have not come back are held, the last until %s",
		g.held.vanished, g.held.of, g.opts.Window, g.held.until.UTC().Format(time.RFC3339))
}
