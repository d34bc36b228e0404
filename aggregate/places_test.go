package aggregate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
)

// Clusters that never answer hold nobody up, even if there are more of them than attempts that may run at once.
func TestSilentMembersLeaveTheirPlaces(t *testing.T) {
	const dead = 8
	server := endtoend.Fakes(t)
	silentServer := endtoend.Silent(t)
	// A minute to connect: the silent members stay in their first attempts throughout.
	f := endtoend.Start(t, aggregate.Options{MaxConnects: 2, ConnectTimeout: time.Minute})
	inv := f.Declare(t, "x")
	for i := range dead {
		name := fmt.Sprint("dead", i)
		inv.Say().Engage(endtoend.FakeMember(server.Cluster(name), silentServer, server, name, "token"))
	}
	for i := range 20 {
		name := fmt.Sprint("c", i)
		inv.Say().Engage(endtoend.FakeMember(server.Cluster(name), server.Addr(), server, name, "token"))
	}
	for i := range 20 {
		endtoend.Eventually(t, "engaged", func() bool { return f.Is(fmt.Sprint("x/c", i), backends.Engaged, backends.ReasonReady) })
	}
	for i := range dead {
		if s := f.Status(fmt.Sprint("x/dead", i)); s.State != backends.Connecting || s.Attempt != 0 {
			t.Errorf("%s is %s after %d attempts, want its first attempt still running", s.Name, s.State, s.Attempt)
		}
	}
}
