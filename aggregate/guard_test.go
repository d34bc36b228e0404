package aggregate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
)

// fleetOf is a guard, the members that are listed, and the time.
type fleetOf struct {
	guard
	now    time.Time
	listed map[string]bool
}

func newFleetOf(members int, opts GuardOptions) *fleetOf {
	f := &fleetOf{guard: guard{opts: opts.withDefaults()}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), listed: map[string]bool{}}
	for i := range members {
		f.listed[fmt.Sprintf("m%02d", i)] = true
	}
	return f
}

// lose has members vanish one after the other, and decides after each.
func (f *fleetOf) lose(every time.Duration, members ...string) (gone, held []string) {
	for _, member := range members {
		f.vanish(f.now, member, backends.ReasonDeleted)
		g, h := f.turn()
		gone, held = append(gone, g...), append(held, h...)
		g, h = f.after(every)
		gone, held = append(gone, g...), append(held, h...)
	}
	return gone, held
}

// after lets time pass, and has the guard decide whenever it wants to.
func (f *fleetOf) after(d time.Duration) (gone, held []string) {
	end := f.now.Add(d)
	for at := f.next(); !at.IsZero() && !at.After(end); at = f.next() {
		f.now = at
		g, h := f.turn()
		if len(g)+len(h) == 0 {
			panic("it wanted to decide, and did nothing")
		}
		gone, held = append(gone, g...), append(held, h...)
	}
	f.now = end
	return gone, held
}

func (f *fleetOf) turn() (gone, held []string) {
	gone, held = f.decide(f.now, len(f.listed))
	for _, member := range gone {
		f.leave(member)
		delete(f.listed, member)
	}
	return gone, held
}

func members(from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprintf("m%02d", i))
	}
	return names
}

func TestGuard(t *testing.T) {
	const moment = 10 * time.Millisecond
	for _, c := range []struct {
		name       string
		members    int
		opts       GuardOptions
		tell       func(f *fleetOf) (gone, held []string)
		gone, held []string
		acts       bool
	}{
		{"one of many goes, after a moment of quiet", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			if gone, _ := f.lose(999*time.Millisecond, "m00"); gone != nil {
				return gone, nil
			}
			return f.after(time.Millisecond)
		}, members(0, 1), nil, false},
		{"half of them go", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			f.lose(moment, members(0, 10)...)
			return f.after(2 * time.Second)
		}, members(0, 10), nil, false},
		{"more than half of them are held, all of them", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			return f.lose(moment, members(0, 11)...)
		}, nil, members(0, 11), true},
		{"and so is what follows", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			f.lose(moment, members(0, 11)...)
			f.after(time.Minute)
			return f.lose(time.Minute, "m11")
		}, nil, members(11, 12), true},
		{"they go after five minutes each", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			f.lose(moment, members(0, 11)...)
			if gone, _ := f.after(5*time.Minute - time.Second); gone != nil {
				return gone, nil
			}
			gone, _ = f.after(time.Second)
			return gone, nil
		}, members(0, 11), nil, false},
		{"slowly enough, everything goes", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			return f.lose(8*time.Second, members(0, 20)...)
		}, members(0, 20), nil, false},
		{"a mass that is slow is seen as well", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			return f.lose(2*time.Second, members(0, 12)...)
		}, members(0, 10), members(10, 12), true},
		{"without a moment of quiet they go after ten seconds", 100, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			return f.lose(500*time.Millisecond, members(0, 21)...)
		}, members(0, 20), nil, false},
		{"of nine they go at once", 9, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			return f.lose(0, members(0, 9)...)
		}, members(0, 9), nil, false},
		{"turned off", 20, GuardOptions{Off: true}, func(f *fleetOf) (gone, held []string) {
			return f.lose(0, members(0, 20)...)
		}, members(0, 20), nil, false},
		{"configured", 5, GuardOptions{MinMembers: 5, Share: 0.2, Hold: time.Minute}, func(f *fleetOf) (gone, held []string) {
			_, held = f.lose(moment, members(0, 2)...)
			gone, _ = f.after(time.Minute)
			return gone, held
		}, members(0, 2), members(0, 2), false},
		{"all are back", 20, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			f.lose(moment, members(0, 15)...)
			for _, m := range members(0, 15) {
				f.back(m)
			}
			return f.after(time.Hour)
		}, nil, nil, false},
		{"one that comes and goes is one", 10, GuardOptions{}, func(f *fleetOf) (gone, held []string) {
			for range 20 {
				g, h := f.lose(2*time.Second, "m00")
				gone, held = append(gone, g...), append(held, h...)
				f.back("m00")
				f.listed["m00"] = true
			}
			return gone[:1], held
		}, members(0, 1), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleetOf(c.members, c.opts)
			gone, held := c.tell(f)
			if diff := cmp.Diff(c.gone, gone); diff != "" {
				t.Errorf("gone (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.held, held); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if message := f.message(); (message != "") != c.acts {
				t.Errorf("message: %q", message)
			}
		})
	}
}

func TestGuardMessage(t *testing.T) {
	f := newFleetOf(20, GuardOptions{})
	f.lose(0, members(0, 11)...)
	const want = "11 of 20 clusters vanished from the inventory within 30s: those that have not come back are held, the last until 2026-01-01T00:05:00Z"
	if got := f.message(); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	for i, m := range members(0, 11) {
		f.back(m)
		if over := f.message() == ""; over != (i == 10) {
			t.Errorf("with %d of 11 back: message %q", i+1, f.message())
		}
	}
	if strings.Contains(f.message(), "vanished") {
		t.Error("the message stays after all are back")
	}
}

// The last of a mass that is let go is the one that vanished last, whatever its name.
func TestGuardNamesTheLastEnd(t *testing.T) {
	f := newFleetOf(20, GuardOptions{})
	backwards := members(0, 11)
	slices.Reverse(backwards)
	f.lose(100*time.Millisecond, backwards...)
	if want := f.guard.leaving["m00"].since.Add(5 * time.Minute); !f.held.until.Equal(want) {
		t.Errorf("until %v, want %v", f.held.until, want)
	}
}
