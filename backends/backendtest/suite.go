package backendtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tributary-fleet/tributary/backends"
)

// Harness makes inventories for the suite.
type Harness struct {
	// New returns an empty inventory that shares nothing with any other. It is cleaned up with the test.
	New func(t *testing.T) Inventory
	// StopHub takes away what the backend reads, and StartHub brings it back as it was; inventories can be changed
	// again when it returns. Both are nil if it cannot be away.
	StopHub, StartHub func(t *testing.T)
	// SyncedAtOnce says that the backend does not know when it has told everything, and has no other words than that a
	// cluster is there or gone. Only what applies to such a backend is tested.
	SyncedAtOnce bool
}

// Inventory is an inventory in the hands of the suite. Its functions change it at once, fail the test if they cannot,
// and leave no goroutine.
type Inventory struct {
	// Backend is a backend that reads the inventory.
	Backend backends.Backend
	// Member returns the backend's name for the member that Put has made under a name of the suite, which is a DNS label.
	Member func(name string) string
	// Put makes a member that is ready to be engaged, or changes how an existing one is reached.
	Put func(t *testing.T, name string, access Access)
	// Break makes the member's data unusable, for instance with BrokenKubeconfig. Put repairs it.
	Break func(t *testing.T, name string)
	// Delete takes the member out of the inventory.
	Delete func(t *testing.T, name string)
}

// Run tests that a backend keeps its contract.
func Run(t *testing.T, h Harness) {
	type test struct {
		name string
		run  func(t *testing.T, i Inventory)
	}
	tests := []test{
		{"engages again with a new connection", testChange},
		{"engages a member that comes later", testLater},
		{"disengages a member that is deleted", testDelete},
		{"returns when its context ends and leaves nothing behind", testEnd},
	}
	if !h.SyncedAtOnce {
		tests = append(tests,
			test{"reports every member before it is synced", testInitial},
			test{"one broken member harms no other", testBroken},
			test{"reports everything again when it is run again", testAgain},
			test{"shows no credential", testCredentials},
		)
	}
	if h.StopHub != nil {
		tests = append(tests,
			test{"disengages nobody while the hub is away", h.testHubAway},
			test{"starts while the hub is away", h.testHubAwayAtStart},
		)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, h.New(t)) })
	}
}

// checkEngaged fails the test unless the member is engaged with the access.
func checkEngaged(t *testing.T, f Fleet, member string, want Access) {
	t.Helper()
	c := f.Members[member].Engaged
	if c == nil {
		t.Errorf("%s is not engaged; the fleet: %s", member, f)
		return
	}
	got := accessOf(c)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is engaged with another connection (-want +got):\n%s", member, diff)
	}
	if c.Name != member || c.Source == (backends.ObjectReference{}) {
		t.Errorf("%s is engaged as %q from %q: name or source is missing", member, c.Name, c.Source)
	}
}

// accessOf returns how a member is said to be reached.
func accessOf(c *backends.Cluster) Access {
	if c.Running != nil {
		config := c.Running.GetConfig()
		return Access{Server: config.Host, Token: config.BearerToken}
	}
	return Access{Server: c.Connection.Endpoint.Server, Token: c.Connection.Auth.Token.Reveal()}
}

// waitAccess waits until the member is engaged with the access.
func waitAccess(t *testing.T, r *Running, member string, want Access) {
	t.Helper()
	r.Wait(t, member+" is engaged with its new connection", func(f Fleet) bool {
		c := f.Members[member].Engaged
		return c != nil && accessOf(c) == want
	})
}

// checkUndisturbed fails the test if a call says anything about a member but that it is engaged, or that its
// engagement is kept.
func checkUndisturbed(t *testing.T, calls []Call, members ...string) {
	t.Helper()
	for _, call := range calls {
		for _, member := range members {
			if call.Name == member && call.Member.Engaged == nil && (call.Member.Held == nil || !call.Member.Held.Keep) {
				t.Errorf("%s was disturbed: %s", member, call.Member)
			}
		}
	}
}

func testInitial(t *testing.T, i Inventory) {
	i.Put(t, "a", accessTo("a", 1))
	i.Put(t, "b", accessTo("b", 1))
	i.Put(t, "broken", accessTo("broken", 1))
	i.Break(t, "broken")
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	reported := map[string]bool{}
	for _, call := range r.Calls() {
		if call.Method == "Synced" {
			break
		}
		reported[call.Name] = true
	}
	for _, name := range []string{"a", "b", "broken"} {
		if !reported[i.Member(name)] {
			t.Errorf("%s was not reported before Synced", i.Member(name))
		}
	}
	checkEngaged(t, r.Fleet(), i.Member("a"), accessTo("a", 1))
	checkEngaged(t, r.Fleet(), i.Member("b"), accessTo("b", 1))
	r.WaitHealth(t, "")
	// A change afterwards must not make it call Synced again.
	i.Put(t, "a", accessTo("a", 2))
	waitAccess(t, r, i.Member("a"), accessTo("a", 2))
	if n := r.Fleet().Synced; n != 1 {
		t.Errorf("Synced was called %d times, want once", n)
	}
}

func testChange(t *testing.T, i Inventory) {
	i.Put(t, "a", accessTo("a", 1))
	i.Put(t, "b", accessTo("b", 1))
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	r.WaitEngaged(t, i.Member("a"))
	r.WaitEngaged(t, i.Member("b"))
	seen := len(r.Calls())
	for generation := 2; generation < 5; generation++ {
		i.Put(t, "a", accessTo("a", generation))
		waitAccess(t, r, i.Member("a"), accessTo("a", generation))
	}
	moved := Access{Server: "https://elsewhere.example.com", Token: accessTo("a", 5).Token}
	i.Put(t, "a", moved)
	waitAccess(t, r, i.Member("a"), moved)
	checkUndisturbed(t, r.Calls()[seen:], i.Member("a"), i.Member("b"))
}

func testLater(t *testing.T, i Inventory) {
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	i.Put(t, "late", accessTo("late", 1))
	r.WaitEngaged(t, i.Member("late"))
	checkEngaged(t, r.Fleet(), i.Member("late"), accessTo("late", 1))
}

func testDelete(t *testing.T, i Inventory) {
	i.Put(t, "a", accessTo("a", 1))
	i.Put(t, "b", accessTo("b", 1))
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	r.WaitEngaged(t, i.Member("a"))
	r.WaitEngaged(t, i.Member("b"))
	seen := len(r.Calls())
	i.Delete(t, "a")
	r.WaitDisengaged(t, i.Member("a"))
	checkUndisturbed(t, r.Calls()[seen:], i.Member("b"))
	i.Put(t, "a", accessTo("a", 2))
	waitAccess(t, r, i.Member("a"), accessTo("a", 2))
}

func testBroken(t *testing.T, i Inventory) {
	names := []string{"a", "b", "c"}
	for _, name := range names {
		i.Put(t, name, accessTo(name, 1))
	}
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	for _, broken := range names {
		seen := len(r.Calls())
		i.Break(t, broken)
		fleet := r.Wait(t, i.Member(broken)+" is held", func(f Fleet) bool { return f.Members[i.Member(broken)].Held != nil })
		hold := fleet.Members[i.Member(broken)].Held
		if hold.Reason == "" || hold.Message == "" || hold.Source == (backends.ObjectReference{}) {
			t.Errorf("hold without reason, message or source: %+v", *hold)
		}
		i.Put(t, broken, accessTo(broken, 2))
		waitAccess(t, r, i.Member(broken), accessTo(broken, 2))
		for _, other := range names {
			if other != broken {
				checkUndisturbed(t, r.Calls()[seen:], i.Member(other))
			}
		}
	}
}

func testEnd(t *testing.T, i Inventory) {
	i.Put(t, "a", accessTo("a", 1))
	before := goleak.IgnoreCurrent()
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	r.WaitEngaged(t, i.Member("a"))
	r.Stop(t)
	if err := goleak.Find(before); err != nil {
		t.Errorf("Run has left goroutines behind: %v", err)
	}
	for _, call := range r.Calls() {
		if call.Late {
			t.Errorf("%s(%s) was called after Run had returned", call.Method, call.Name)
		}
	}
	if last := r.Fleet().Members[i.Member("a")]; last.Engaged == nil {
		t.Errorf("ending Run changed what is said of %s: %s", i.Member("a"), last)
	}
}

func testAgain(t *testing.T, i Inventory) {
	i.Put(t, "stays", accessTo("stays", 1))
	i.Put(t, "goes", accessTo("goes", 1))
	first := Start(t, i.Backend)
	first.WaitSynced(t)
	first.Stop(t)

	i.Delete(t, "goes")
	i.Put(t, "comes", accessTo("comes", 1))

	second := Start(t, i.Backend)
	second.WaitSynced(t)
	checkEngaged(t, second.Fleet(), i.Member("stays"), accessTo("stays", 1))
	checkEngaged(t, second.Fleet(), i.Member("comes"), accessTo("comes", 1))
	if last, ok := second.Fleet().Members[i.Member("goes")]; ok && last.Disengaged == "" {
		t.Errorf("%s was deleted between two runs; it is said to be %s", i.Member("goes"), last)
	}
}

func testCredentials(t *testing.T, i Inventory) {
	i.Put(t, "good", accessTo("good", 1))
	i.Put(t, "bad", accessTo("bad", 1))
	i.Break(t, "bad")
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	i.Break(t, "good")
	r.Wait(t, "the other one is held, too", func(f Fleet) bool { return f.Members[i.Member("good")].Held != nil })
	for _, call := range r.Calls() {
		var said any
		switch {
		case call.Member.Engaged != nil:
			said = *call.Member.Engaged
		case call.Member.Held != nil:
			said = *call.Member.Held
		default:
			said = call.Health
		}
		asJSON, err := json.Marshal(said)
		if err != nil {
			t.Fatalf("%s(%s) says what cannot be marshalled: %v", call.Method, call.Name, err)
		}
		text := fmt.Sprintf("%v %+v %#v %s", said, said, said, asJSON)
		if strings.Contains(text, marker) {
			t.Errorf("%s(%s) shows a credential", call.Method, call.Name)
		}
	}
}

func (h Harness) testHubAway(t *testing.T, i Inventory) {
	i.Put(t, "a", accessTo("a", 1))
	i.Put(t, "b", accessTo("b", 1))
	r := Start(t, i.Backend)
	r.WaitSynced(t)
	r.WaitHealth(t, "")
	seen := len(r.Calls())
	h.StopHub(t)
	r.WaitHealth(t, backends.ReasonHubUnreachable)
	h.StartHub(t)
	r.WaitHealth(t, "")
	checkUndisturbed(t, r.Calls()[seen:], i.Member("a"), i.Member("b"))
	i.Put(t, "a", accessTo("a", 2))
	waitAccess(t, r, i.Member("a"), accessTo("a", 2))
	i.Delete(t, "b")
	r.WaitDisengaged(t, i.Member("b"))
}

func (h Harness) testHubAwayAtStart(t *testing.T, i Inventory) {
	i.Put(t, "a", accessTo("a", 1))
	h.StopHub(t)
	r := Start(t, i.Backend)
	r.WaitHealth(t, backends.ReasonHubUnreachable)
	if f := r.Fleet(); f.Synced > 0 || len(f.Members) > 0 {
		t.Errorf("without a hub, something is known nevertheless: %s", f)
	}
	h.StartHub(t)
	r.WaitSynced(t)
	checkEngaged(t, r.Fleet(), i.Member("a"), accessTo("a", 1))
	r.WaitHealth(t, "")
}
