package backendtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/backends"
)

// Patience is how long a Recorder waits for what a test expects before it fails the test.
const Patience = time.Minute

// Recorder is a [backends.Engager] that remembers what it was told. Its zero value is ready to use.
type Recorder struct {
	mu      sync.Mutex
	fleet   Fleet
	calls   []Call
	ended   bool
	changed chan struct{} // closed at the next call; nil if nobody waits
}

var _ backends.Engager = (*Recorder)(nil)

// Fleet is the last word about everything.
type Fleet struct {
	// Members are all that were ever spoken of, by name.
	Members map[string]Member
	// Synced is how often Synced was called.
	Synced int
	// Health is the last report.
	Health backends.Health
}

// Member is the last word about a member: one field is set.
type Member struct {
	Engaged    *backends.Cluster
	Held       *backends.Hold
	Disengaged backends.Reason
}

// String says which it is, without credentials.
func (m Member) String() string {
	switch {
	case m.Engaged != nil:
		return fmt.Sprintf("engaged at %s", m.Engaged.Connection.Endpoint.Server)
	case m.Held != nil:
		return fmt.Sprintf("held: %s (%s, rejected %t, keep %t)", m.Held.Reason, m.Held.Message, m.Held.Rejected, m.Held.Keep)
	}
	return fmt.Sprintf("disengaged: %s", m.Disengaged)
}

// String shows a fleet, a member a line, without credentials.
func (f Fleet) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "synced %d times, health %q %s", f.Synced, f.Health.Reason, f.Health.Message)
	for _, name := range slices.Sorted(maps.Keys(f.Members)) {
		fmt.Fprintf(&b, "\n  %s: %s", name, f.Members[name])
	}
	return b.String()
}

// Call is one call of the Engager.
type Call struct {
	// Method is the method's name.
	Method string
	// Name is the member, for the methods that concern one.
	Name string
	// Member is what was said about it.
	Member Member
	// Health is what Report said.
	Health backends.Health
	// Late says that the call came after the backend's Run had returned.
	Late bool
}

// Engage implements backends.Engager.
func (r *Recorder) Engage(c backends.Cluster) {
	r.record(Call{Method: "Engage", Name: c.Name, Member: Member{Engaged: &c}})
}

// Hold implements backends.Engager.
func (r *Recorder) Hold(name string, h backends.Hold) {
	r.record(Call{Method: "Hold", Name: name, Member: Member{Held: &h}})
}

// Disengage implements backends.Engager.
func (r *Recorder) Disengage(name string, reason backends.Reason) {
	r.record(Call{Method: "Disengage", Name: name, Member: Member{Disengaged: reason}})
}

// Synced implements backends.Engager.
func (r *Recorder) Synced() { r.record(Call{Method: "Synced"}) }

// Report implements backends.Engager.
func (r *Recorder) Report(h backends.Health) { r.record(Call{Method: "Report", Health: h}) }

func (r *Recorder) record(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Late = r.ended
	r.calls = append(r.calls, c)
	switch c.Method {
	case "Synced":
		r.fleet.Synced++
	case "Report":
		r.fleet.Health = c.Health
	default:
		if r.fleet.Members == nil {
			r.fleet.Members = map[string]Member{}
		}
		r.fleet.Members[c.Name] = c.Member
	}
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// end says that Run has returned, so every further call is late.
func (r *Recorder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// Fleet returns the last word about everything.
func (r *Recorder) Fleet() Fleet {
	r.mu.Lock()
	defer r.mu.Unlock()
	fleet := r.fleet
	fleet.Members = maps.Clone(fleet.Members)
	return fleet
}

// Calls returns all calls, in their order.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Wait waits until condition holds, and fails the test with what if it does not within [Patience]. It returns the
// fleet for which it held.
func (r *Recorder) Wait(t testing.TB, what string, condition func(Fleet) bool) Fleet {
	t.Helper()
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		fleet := r.Fleet()
		if condition(fleet) {
			return fleet
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("waited in vain for: %s\nthe fleet: %s", what, fleet)
		}
	}
}

// WaitEngaged waits until the last word about a member is Engage, and returns it.
func (r *Recorder) WaitEngaged(t testing.TB, name string) backends.Cluster {
	t.Helper()
	fleet := r.Wait(t, name+" is engaged", func(f Fleet) bool { return f.Members[name].Engaged != nil })
	return *fleet.Members[name].Engaged
}

// WaitHeld waits until the last word about a member is a Hold for the reason, and returns it.
func (r *Recorder) WaitHeld(t testing.TB, name string, reason backends.Reason) backends.Hold {
	t.Helper()
	fleet := r.Wait(t, fmt.Sprintf("%s is held for %s", name, reason), func(f Fleet) bool {
		held := f.Members[name].Held
		return held != nil && held.Reason == reason
	})
	return *fleet.Members[name].Held
}

// WaitDisengaged waits until the last word about a member is Disengage.
func (r *Recorder) WaitDisengaged(t testing.TB, name string) {
	t.Helper()
	r.Wait(t, name+" is disengaged", func(f Fleet) bool { return f.Members[name].Disengaged != "" })
}

// WaitSynced waits until Synced was called.
func (r *Recorder) WaitSynced(t testing.TB) {
	t.Helper()
	r.Wait(t, "all members are reported", func(f Fleet) bool { return f.Synced > 0 })
}

// WaitHealth waits until the last report has the reason; an empty reason means well.
func (r *Recorder) WaitHealth(t testing.TB, reason backends.Reason) backends.Health {
	t.Helper()
	what := "the inventory is well"
	if reason != "" {
		what = "the inventory reports " + string(reason)
	}
	return r.Wait(t, what, func(f Fleet) bool { return f.Health.Reason == reason }).Health
}
