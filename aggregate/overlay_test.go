package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// overlay is a fleet with two backends under the prefix "prod", of which the first one comes first.
type overlay struct {
	*endtoend.Fleet
	server        *fakeapi.Server
	first, second *endtoend.Inventory
}

func startOverlay(t *testing.T, opts aggregate.Options, second aggregate.BackendOptions) *overlay {
	t.Helper()
	o := &overlay{Fleet: endtoend.Start(t, opts), server: endtoend.Fakes(t)}
	o.first = o.DeclareUnder(t, "first", aggregate.BackendOptions{Prefix: "prod"})
	second.Prefix = "prod"
	o.second = o.DeclareUnder(t, "second", second)
	o.first.Say().Synced()
	o.second.Say().Synced()
	return o
}

func (o *overlay) arrange(t *testing.T, order ...string) {
	t.Helper()
	if err := o.Arrange("prod", order...); err != nil {
		t.Fatal(err)
	}
}

// cluster makes a fake cluster that takes both of the backends' credentials.
func (o *overlay) cluster(name string) *fakeapi.Cluster {
	c := o.server.Cluster(name)
	c.AllowToken("first", "user")
	c.AllowToken("second", "user")
	return c
}

// engage has a backend declare the cluster as prod/name, with its own credential.
func (o *overlay) engage(inv *endtoend.Inventory, c *fakeapi.Cluster, name string) {
	token := "first"
	if inv == o.second {
		token = "second"
	}
	inv.Say().Engage(endtoend.FakeMember(c, o.server.Addr(), o.server, name, token))
}

// serves waits until the backend serves the cluster and all is well with it.
func (o *overlay) serves(t *testing.T, name, backend string) {
	t.Helper()
	endtoend.Eventually(t, name+" is served by "+backend, func() bool {
		s := o.Status("prod/" + name)
		config, err := o.RESTConfigFor(t.Context(), endtoend.Name("prod/"+name))
		return err == nil && config.BearerToken == backend && s.Backend == backend && s.State == backends.Engaged && s.Reason == backends.ReasonReady
	})
}

// ready waits until the cluster could move to the backend, which does not serve it, without a relist.
func (o *overlay) ready(t *testing.T, name, backend string) {
	t.Helper()
	endtoend.Eventually(t, name+" could move to "+backend, func() bool {
		c := o.candidate(name, backend)
		return c.State == backends.Shadowed && c.Reason == backends.ReasonServedByOther
	})
}

func (o *overlay) candidate(name, backend string) aggregate.Candidate {
	for _, c := range o.Status("prod/" + name).Candidates {
		if c.Backend == backend {
			return c
		}
	}
	return aggregate.Candidate{}
}

func (o *overlay) get(t *testing.T, name string) cluster.Cluster {
	t.Helper()
	cl, err := o.Get(t.Context(), endtoend.Name("prod/"+name))
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// moves does something, waits until the backend serves the cluster, and makes sure that nobody felt it.
func (o *overlay) moves(t *testing.T, c *fakeapi.Cluster, name, to string, cause func()) {
	t.Helper()
	before := o.get(t, name)
	c.Counter.Reset()
	cause()
	o.serves(t, name, to)
	if o.get(t, name) != before {
		t.Errorf("%s was engaged anew", name)
	}
	key := endtoend.PutConfigMap(t, c, "after")
	endtoend.Eventually(t, "reconciled", func() bool { return o.Saw("prod/"+name, key) > 0 })
	if n := c.Counter.Relists(); n > 0 {
		t.Errorf("%d lists", n)
	}
}

// A cluster moves between the backends that list it, caches and all: when their order changes, when the one that serves it
// withdraws it, lists it again, holds it, or is removed.
func TestMovesBetweenBackends(t *testing.T) {
	o := startOverlay(t, aggregate.Options{}, aggregate.BackendOptions{})
	c := o.cluster("c")
	o.engage(o.second, c, "c")
	o.serves(t, "c", "second")
	if got := o.Status("prod/c").Candidates; got != nil {
		t.Errorf("candidates of a cluster that one backend lists: %+v", got)
	}
	o.moves(t, c, "c", "first", func() { o.engage(o.first, c, "c") })
	o.ready(t, "c", "second")
	o.moves(t, c, "c", "second", func() { o.arrange(t, "second", "first") })
	o.ready(t, "c", "first")
	o.moves(t, c, "c", "first", func() { o.second.Say().Disengage("c", backends.ReasonDeleted) })
	o.moves(t, c, "c", "second", func() { o.engage(o.second, c, "c") })
	o.moves(t, c, "c", "first", func() {
		o.second.Say().Hold("c", backends.Hold{Reason: backends.ReasonMoving, Keep: true})
	})
	o.moves(t, c, "c", "second", func() {
		o.engage(o.second, c, "c")
		if err := o.Remove(t.Context(), "first"); err != nil {
			t.Error(err)
		}
		if s := o.Status("prod/c"); s.Backend != "second" {
			t.Errorf("removed, and serves still: %+v", s)
		}
	})
}

// What one backend may no longer use, by a policy, the other one does not save.
func TestRejectedIsDisengagedAtOnce(t *testing.T) {
	o := startOverlay(t, aggregate.Options{}, aggregate.BackendOptions{})
	c := o.cluster("c")
	o.engage(o.first, c, "c")
	o.serves(t, "c", "first")
	o.engage(o.second, c, "c")
	o.ready(t, "c", "second")
	before := o.get(t, "c")
	o.first.Say().Hold("c", backends.Hold{Reason: backends.ReasonPolicyViolation, Rejected: true})
	if cl, err := o.Get(t.Context(), "prod/c"); err == nil && cl == before {
		t.Error("engaged still upon what a policy refuses")
	}
	o.serves(t, "c", "second")
	if s := o.candidate("c", "first"); s.State != backends.Rejected || s.Reason != backends.ReasonPolicyViolation {
		t.Errorf("the refused candidate: %+v", s)
	}
}

// When the credential of the backend that serves dies, the next one takes over; and back, when it has been well for a while.
func TestFailOverAndBack(t *testing.T) {
	o := startOverlay(t, aggregate.Options{ProbeInterval: 200 * time.Millisecond, ProbeFailures: 1000, ProofInterval: 200 * time.Millisecond,
		FailBack: time.Second, RetryMax: 200 * time.Millisecond, RetryBase: 100 * time.Millisecond}, aggregate.BackendOptions{})
	c := o.cluster("c")
	o.engage(o.first, c, "c")
	o.serves(t, "c", "first")
	o.engage(o.second, c, "c")
	o.ready(t, "c", "second")
	o.moves(t, c, "c", "second", func() { c.RevokeToken("first") })
	endtoend.Eventually(t, "the reason is shown", func() bool {
		s := o.candidate("c", "first")
		return s.State == backends.Connecting && s.Reason == backends.ReasonUnauthorized
	})
	o.moves(t, c, "c", "first", func() { c.AllowToken("first", "user") })
}

// A backend that leads to another cluster is told so, and takes the name over only if it is configured to.
func TestAnotherCluster(t *testing.T) {
	for _, replace := range []bool{false, true} {
		t.Run(fmt.Sprintf("replace=%v", replace), func(t *testing.T) {
			o := startOverlay(t, aggregate.Options{}, aggregate.BackendOptions{Replace: replace})
			mine, other := o.cluster("mine"), o.cluster("other")
			o.engage(o.first, mine, "c")
			o.serves(t, "c", "first")
			before := o.get(t, "c")
			o.engage(o.second, other, "c")
			endtoend.Eventually(t, "the difference is shown", func() bool {
				c := o.candidate("c", "second")
				return c.State == backends.Shadowed && c.Reason == backends.ReasonIdentityDiffers && c.UID == "uid-of-other"
			})
			o.arrange(t, "second", "first")
			if replace {
				o.serves(t, "c", "second")
				key := endtoend.PutConfigMap(t, other, "other")
				endtoend.Eventually(t, "reconciled in the other cluster", func() bool { return o.Saw("prod/c", key) > 0 })
				return
			}
			endtoend.Eventually(t, "that is why it is not replaced", func() bool {
				return o.Is("prod/c", backends.Engaged, backends.ReasonIdentityDiffers)
			})
			if o.get(t, "c") != before {
				t.Error("it was engaged anew")
			}
			// Only when the first one lists it no longer is the name free.
			o.first.Say().Disengage("c", backends.ReasonDeleted)
			o.serves(t, "c", "second")
		})
	}
}

// At the start, a name that two backends list is served by the first of them from the beginning, whichever speaks first.
func TestHeadStart(t *testing.T) {
	server := endtoend.Fakes(t)
	c := server.Cluster("c")
	c.AllowToken("first", "user")
	c.AllowToken("second", "user")
	first, second := endtoend.NewInventory(), endtoend.NewInventory()
	f := endtoend.Start(t, aggregate.Options{HeadStart: time.Hour}, endtoend.Before(func(f *endtoend.Fleet) {
		for name, inv := range map[string]*endtoend.Inventory{"a-first": first, "b-second": second} {
			if err := f.Add(name, inv, aggregate.BackendOptions{Prefix: "prod"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Arrange("prod", "a-first", "b-second"); err != nil {
			t.Fatal(err)
		}
	}))
	<-first.Running
	<-second.Running
	second.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, "c", "second"))
	second.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, "d", "second"))
	second.Say().Synced()
	first.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, "c", "first"))
	endtoend.Eventually(t, "served by the first", func() bool { return f.Status("prod/c").Backend == "a-first" && f.Engaged("prod/c") })
	if s := f.Status("prod/d"); s.State != backends.Connecting || s.Attempt != 0 {
		t.Errorf("what only the second one has listed so far: %+v", s)
	}
	first.Say().Synced()
	endtoend.Eventually(t, "served by the second, for the first one does not list it", func() bool {
		return f.Status("prod/d").Backend == "b-second" && f.Status("prod/d").State == backends.Engaged
	})
}

// One cluster under several names is told to be a duplicate, or served under the first of them.
func TestDuplicates(t *testing.T) {
	server := endtoend.Fakes(t)
	c := server.Cluster("c")
	c.AllowToken("token", "user")
	start := func(t *testing.T, once bool) (*endtoend.Fleet, *endtoend.Inventory, *endtoend.Inventory) {
		f := endtoend.Start(t, aggregate.Options{ServeOnce: once})
		a := f.Declare(t, "a")
		return f, a, f.Declare(t, "b")
	}
	engage := func(inv *endtoend.Inventory, name string) {
		inv.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, name, "token"))
	}
	t.Run("told", func(t *testing.T) {
		f, a, b := start(t, false)
		engage(b, "y")
		endtoend.Eventually(t, "engaged", func() bool { return f.Engaged("b/y") })
		engage(a, "x")
		endtoend.Eventually(t, "both know", func() bool {
			x, y := f.Status("a/x"), f.Status("b/y")
			return x.Reason == backends.ReasonDuplicate && x.DuplicateOf == "" && y.Reason == backends.ReasonDuplicate && y.DuplicateOf == "a/x"
		})
		if x, y := f.Status("a/x").Message, f.Status("b/y").Message; x != "1 other name leads to the same cluster" || y != "the same cluster as a/x" {
			t.Errorf("messages %q, %q", x, y)
		}
		a.Say().Disengage("x", backends.ReasonDeleted)
		endtoend.Eventually(t, "alone again", func() bool { return f.Engaged("b/y") && f.Status("b/y").DuplicateOf == "" })
	})
	t.Run("served once", func(t *testing.T) {
		f, a, b := start(t, true)
		engage(a, "x")
		endtoend.Eventually(t, "engaged", func() bool { return f.Engaged("a/x") })
		engage(b, "y")
		shadowed := func(name, by string) {
			t.Helper()
			endtoend.Eventually(t, name+" is shadowed by "+by, func() bool {
				s := f.Status(name)
				return s.State == backends.Shadowed && s.Reason == backends.ReasonDuplicate && s.DuplicateOf.String() == by && s.UID == "uid-of-c"
			})
		}
		shadowed("b/y", "a/x")
		if _, err := f.Get(t.Context(), "b/y"); !errors.Is(err, backends.ErrNotEngaged) {
			t.Errorf("Get of a shadowed name: %v", err)
		}
		key := endtoend.PutConfigMap(t, c, "once")
		endtoend.Eventually(t, "reconciled", func() bool { return f.Saw("a/x", key) > 0 })
		if f.Saw("b/y", key) > 0 {
			t.Error("reconciled under both names")
		}
		// When the first name goes, the second one serves the cluster; and no longer, when it is back.
		a.Say().Disengage("x", backends.ReasonDeleted)
		endtoend.Eventually(t, "served under the second name", func() bool { return f.Is("b/y", backends.Engaged, backends.ReasonReady) })
		engage(a, "x")
		endtoend.Eventually(t, "engaged", func() bool { return f.Status("a/x").State == backends.Engaged })
		shadowed("b/y", "a/x")
		// A new connection may lead elsewhere, and is looked at.
		other := server.Cluster("other")
		other.AllowToken("token", "user")
		b.Say().Engage(endtoend.FakeMember(other, server.Addr(), server, "y", "token"))
		endtoend.Eventually(t, "engaged in the other cluster", func() bool { return f.Engaged("b/y") && f.Status("b/y").UID == "uid-of-other" })
	})
}

// Another inventory under a backend's name disengages nothing that both list.
func TestUpdateBackend(t *testing.T) {
	server := endtoend.Fakes(t)
	f := endtoend.Start(t, aggregate.Options{})
	old := f.Declare(t, "x")
	say := func(inv *endtoend.Inventory, names ...string) {
		for _, n := range names {
			c := server.Cluster(n)
			c.AllowToken("token", "user")
			inv.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, n, "token"))
		}
		inv.Say().Synced()
	}
	say(old, "a", "b")
	endtoend.Eventually(t, "engaged", func() bool { return f.Engaged("x/a") && f.Engaged("x/b") })
	before, err := f.Get(t.Context(), "x/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Update("x", endtoend.NewInventory(), aggregate.BackendOptions{Prefix: "y"}); err == nil {
		t.Error("the prefix could be changed")
	}
	if err := f.Update("z", endtoend.NewInventory(), aggregate.BackendOptions{}); !errors.Is(err, aggregate.ErrBackendNotFound) {
		t.Errorf("update of an unknown backend: %v", err)
	}
	updated := endtoend.NewInventory()
	if err := f.Update("x", updated, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	<-updated.Running
	if !f.Engaged("x/a") || !f.Engaged("x/b") {
		t.Error("disengaged before the new inventory has told what it lists")
	}
	say(updated, "a", "c")
	endtoend.Eventually(t, "as the new inventory says", func() bool {
		return f.Engaged("x/a") && f.Engaged("x/c") && f.Status("x/b").Name == ""
	})
	if now, err := f.Get(t.Context(), "x/a"); err != nil || now != before {
		t.Errorf("what both list was engaged anew (%v)", err)
	}
}

// What vanishes in a mass is held, and says so; what comes back is as it was.
func TestMassDisappearance(t *testing.T) {
	const members = 12
	server := endtoend.Fakes(t)
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "x")
	name := func(i int) string { return fmt.Sprintf("m%02d", i) }
	engage := func(i int) {
		c := server.Cluster(name(i))
		c.AllowToken("token", "user")
		inv.Say().Engage(endtoend.FakeMember(c, server.Addr(), server, name(i), "token"))
	}
	before := map[int]cluster.Cluster{}
	for i := range members {
		engage(i)
	}
	inv.Say().Synced()
	for i := range members {
		endtoend.Eventually(t, "engaged", func() bool { return f.Engaged("x/" + name(i)) })
		cl, err := f.Get(t.Context(), endtoend.Name("x/"+name(i)))
		if err != nil {
			t.Fatal(err)
		}
		before[i] = cl
	}
	for i := range members {
		inv.Say().Disengage(name(i), backends.ReasonDeleted)
	}
	for i := range members {
		if !f.Is("x/"+name(i), backends.Engaged, backends.ReasonVanished) {
			t.Errorf("%+v", f.Status("x/"+name(i)))
		}
	}
	if h := f.Backends()[0].Health; h.Reason != backends.ReasonVanished {
		t.Errorf("health %+v", h)
	}
	// What a policy refuses is not held.
	inv.Say().Hold(name(0), backends.Hold{Reason: backends.ReasonPolicyViolation, Rejected: true})
	if !f.Is("x/"+name(0), backends.Rejected, backends.ReasonPolicyViolation) {
		t.Errorf("%+v", f.Status("x/"+name(0)))
	}
	for i := 1; i < members; i++ {
		engage(i)
		if !f.Engaged("x/" + name(i)) {
			t.Errorf("it is back: %+v", f.Status("x/"+name(i)))
		}
		if now, err := f.Get(t.Context(), endtoend.Name("x/"+name(i))); err != nil || now != before[i] {
			t.Errorf("it was engaged anew (%v)", err)
		}
	}
	if h := f.Backends()[0].Health; h != (backends.Health{}) {
		t.Errorf("health after all are back: %+v", h)
	}
	// A backend that is removed takes its clusters with it at once.
	ctx, cancel := context.WithTimeout(t.Context(), endtoend.Patience)
	defer cancel()
	if err := f.Remove(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	if left := f.Clusters(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}
