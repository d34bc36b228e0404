package aggregate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
)

// Clusters that never answer hold nobody up, even if there are more of them than attempts that may run at once.
func TestSilentMembersLeaveTheirPlaces(t *testing.T) {
	const dead = 8
	server := newServer(t)
	silentServer := silent(t)
	// A minute to connect: the silent members stay in their first attempts throughout.
	f := newFleet(t, aggregate.Options{MaxConnects: 2, ConnectTimeout: time.Minute})
	inv := started(t, f, "x")
	for i := range dead {
		name := fmt.Sprint("dead", i)
		inv.say().Engage(fakeMember(server.Cluster(name), silentServer, server, name, "token"))
	}
	for i := range 20 {
		name := fmt.Sprint("c", i)
		inv.say().Engage(fakeMember(server.Cluster(name), server.Addr(), server, name, "token"))
	}
	for i := range 20 {
		eventually(t, "engaged", func() bool { return f.is(fmt.Sprint("x/c", i), backends.Engaged, backends.ReasonReady) })
	}
	for i := range dead {
		if s := f.status(fmt.Sprint("x/dead", i)); s.State != backends.Connecting || s.Attempt != 0 {
			t.Errorf("%s is %s after %d attempts, want its first attempt still running", s.Name, s.State, s.Attempt)
		}
	}
}
