package aggregate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// A backend that is removed and added again under its name, with the same members or with others, leaves nothing behind.
func TestBackendsComeAndGo(t *testing.T) {
	const rounds, members = 100, 5
	server := endtoend.Fakes(t)
	// multicluster-runtime's controllers keep one goroutine for every engagement until they stop, so this fleet has none.
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithoutController())
	stays := f.Declare(t, "stays")
	stays.Say().Engage(fakeMember(server, "stays"))
	endtoend.Eventually(t, "engaged", func() bool { return f.Engaged("stays/stays") })
	before, err := f.Get(t.Context(), "stays/stays")
	if err != nil {
		t.Fatal(err)
	}
	round := func(n int) {
		t.Helper()
		inv := f.Declare(t, "comes")
		for i := range members {
			name := fmt.Sprintf("m%d", i)
			if n%2 == 1 {
				name += "-other"
			}
			inv.Say().Engage(fakeMember(server, name))
		}
		inv.Say().Synced()
		if n%3 != 0 { // else it is removed while its members are being connected to
			endtoend.Eventually(t, "engaged", func() bool {
				engaged := 0
				for _, c := range f.Clusters() {
					if c.Backend == "comes" && c.State == backends.Engaged && c.Reason == backends.ReasonReady {
						engaged++
					}
				}
				return engaged == members
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), endtoend.Patience)
		defer cancel()
		if err := f.Remove(ctx, "comes"); err != nil {
			t.Fatal(err)
		}
		if left := f.Clusters(); len(left) != 1 {
			t.Fatalf("left after the removal: %+v", left)
		}
	}
	for n := range 10 {
		round(n)
	}
	goroutines, heap := settled()
	for n := range rounds {
		round(n)
	}
	backTo(t, goroutines, heap)
	if now, err := f.Get(t.Context(), "stays/stays"); err != nil || now != before {
		t.Errorf("the other backend's cluster was engaged anew (%v)", err)
	}
}

// A backend that fails over and over keeps its members engaged, and nobody else notices.
func TestCrashingBackend(t *testing.T) {
	server := endtoend.Fakes(t)
	f := endtoend.Start(t, aggregate.Options{})
	other := f.Declare(t, "other")
	other.Say().Engage(fakeMember(server, "fine"))
	inv := f.Declare(t, "crashes")
	inv.Say().Engage(fakeMember(server, "a"))
	inv.Say().Engage(fakeMember(server, "b"))
	inv.Say().Synced()
	names := []string{"other/fine", "crashes/a", "crashes/b"}
	for _, name := range names {
		endtoend.Eventually(t, "engaged", func() bool { return f.Engaged(name) })
	}
	since := map[string]aggregate.ClusterStatus{}
	for _, name := range names {
		since[name] = f.Status(name)
	}
	ctx, stop := context.WithCancel(t.Context())
	changed := make(chan string, 1)
	go func() {
		defer close(changed)
		seen := map[string]bool{}
		for c := range f.Subscribe(ctx) {
			if seen[c.Name.String()] {
				changed <- fmt.Sprintf("%s: %s (%s)", c.Name, c.State, c.Reason)
				return
			}
			seen[c.Name.String()] = true
		}
	}()
	for n := range 3 {
		select {
		case inv.Fail <- fmt.Errorf("crash %d", n):
		case change := <-changed:
			t.Fatalf("a change: %s", change)
		}
		endtoend.Eventually(t, "the crash is shown", func() bool {
			return f.Backends()[1].Health.Message == fmt.Sprint("crash ", n)
		})
		<-inv.Running
	}
	for _, name := range []string{"a", "b"} {
		inv.Say().Engage(fakeMember(server, name))
	}
	inv.Say().Synced()
	key := endtoend.PutConfigMap(t, server.Cluster("a"), "after")
	endtoend.Eventually(t, "reconciled after the crashes", func() bool { return f.Saw("crashes/a", key) > 0 })
	stop()
	if change, any := <-changed; any {
		t.Errorf("a change: %s", change)
	}
	for _, name := range names {
		if now := f.Status(name); !now.Since.Equal(since[name].Since) || !f.Engaged(name) {
			t.Errorf("%s: %+v", name, now)
		}
	}
}

// fakeMember declares a fake cluster of the name.
func fakeMember(server *fakeapi.Server, name string) backends.Cluster {
	c := server.Cluster(name)
	c.AllowToken("token", "user")
	return endtoend.FakeMember(c, server.Addr(), server, name, "token")
}
