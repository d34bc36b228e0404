package aggregate_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// victim is a member that misbehaves: a fake API server behind a proxy.
type victim struct {
	*fakeapi.Cluster
	proxy  *faultproxy.Proxy
	server *fakeapi.Server
	other  string // the address of a server with another certificate authority
}

// fault is one kind of trouble: how it is made, how it is mended, and what may be shown meanwhile at connecting.
type fault struct {
	name        string
	make, mend  func(t *testing.T, v *victim)
	atConnect   backends.Reason // the reason at connecting; empty: it connects all the same
	atSwap      backends.Reason // the reason at swapping; empty: it swaps all the same
	interrupted bool            // an engaged cluster is seen to suffer (Degraded or Disconnected)
}

func mode(m faultproxy.Mode) func(*testing.T, *victim) {
	return func(t *testing.T, v *victim) {
		t.Helper()
		if err := v.proxy.SetMode(m); err != nil {
			t.Fatal(err)
		}
	}
}

func answer(path string, f fakeapi.Fault) func(*testing.T, *victim) {
	return func(t *testing.T, v *victim) {
		v.SetFault(path, f)
		v.EndWatches("")
	}
}

func clearFaults(t *testing.T, v *victim) { v.ClearFaults() }

const goodToken, nextToken = "good", "next"

var faults = []fault{
	{"refuse", mode(faultproxy.Refuse), mode(faultproxy.Pass), backends.ReasonUnreachable, backends.ReasonConnectionRejected, false},
	{"blackhole", mode(faultproxy.Blackhole), mode(faultproxy.Pass), backends.ReasonTimeout, backends.ReasonConnectionRejected, true},
	{"half-open", mode(faultproxy.HalfOpen), mode(faultproxy.Pass), "", "", true},
	{"reset", mode(faultproxy.Reset), mode(faultproxy.Pass), backends.ReasonUnreachable, backends.ReasonConnectionRejected, true},
	{"slow", answer("", fakeapi.Fault{Delay: 5 * time.Second}), clearFaults, backends.ReasonTimeout, backends.ReasonConnectionRejected, true},
	{"wrong-certificate", func(t *testing.T, v *victim) {
		v.proxy.SetTarget(v.other)
		mode(faultproxy.Reset)(t, v)
		mode(faultproxy.Pass)(t, v)
	}, func(t *testing.T, v *victim) { v.proxy.SetTarget(v.server.Addr()) }, backends.ReasonTLSFailed, backends.ReasonConnectionRejected, true},
	{"unauthorized", func(t *testing.T, v *victim) {
		v.RevokeToken(goodToken)
		v.RevokeToken(nextToken)
		v.EndWatches("")
	}, func(t *testing.T, v *victim) {
		v.AllowToken(goodToken, "user")
		v.AllowToken(nextToken, "user")
	}, backends.ReasonUnauthorized, backends.ReasonCredentialRejected, true},
	{"forbidden-kind", answer("/api/v1/configmaps", fakeapi.Fault{Status: http.StatusForbidden}), clearFaults, "", "", true},
	{"too-many-requests", answer("/api/v1/configmaps", fakeapi.Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Second}), clearFaults, "", "", false},
	{"server-error", answer("", fakeapi.Fault{Status: http.StatusInternalServerError}), clearFaults, backends.ReasonServerError, backends.ReasonConnectionRejected, true},
	{"garbage", answer("", fakeapi.Fault{Garbage: true}), clearFaults, backends.ReasonInvalidResponse, backends.ReasonConnectionRejected, true},
	{"broken-group", func(t *testing.T, v *victim) { v.BreakGroup("group-0.example.com", true) },
		func(t *testing.T, v *victim) { v.BreakGroup("group-0.example.com", false) }, "", "", false},
}

// TestFaults lets every fault happen at every moment of a cluster's life. Whatever happens to one, a healthy cluster beside it goes on being reconciled, the
// state tells the truth, and the cluster is well again when the fault is mended, without anybody's help.
func TestFaults(t *testing.T) {
	server := fakeapi.NewServer()
	t.Cleanup(server.Close)
	other, err := faultproxy.StartTLS("https://"+server.Addr(), faultproxy.TLSOptions{CAData: server.CAData()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	f := endtoend.Start(t, aggregate.Options{
		ConnectTimeout: 3 * time.Second, RetryBase: 100 * time.Millisecond, RetryMax: 500 * time.Millisecond,
		ProbeInterval: 300 * time.Millisecond, ProbeTimeout: 3 * time.Second, ProbeFailures: 3, DrainTimeout: 2 * time.Second,
	})
	// All the victims that are removed at once would be taken for a mass.
	inv := f.DeclareUnder(t, "x", aggregate.BackendOptions{Guard: aggregate.GuardOptions{Off: true}})
	healthy := server.Cluster("healthy")
	inv.Say().Engage(endtoend.FakeMember(healthy, server.Addr(), server, "healthy", ""))
	endtoend.Eventually(t, "the healthy member is engaged", func() bool { return f.Is("x/healthy", backends.Engaged, backends.ReasonReady) })

	t.Run("cases", func(t *testing.T) {
		for _, fault := range faults {
			for _, moment := range []string{"connecting", "syncing", "engaged", "swapping", "removing"} {
				t.Run(fault.name+"/"+moment, func(t *testing.T) {
					t.Parallel()
					name := fault.name + "-" + moment
					v := &victim{Cluster: server.Cluster(name), server: server, other: other.Addr()}
					v.SetKinds(20)
					v.AllowToken(goodToken, "user")
					v.AllowToken(nextToken, "user")
					var err error
					if v.proxy, err = faultproxy.Start(server.Addr(), faultproxy.Options{}); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(v.proxy.Close)
					c := &faultCase{Fleet: f, inv: inv, victim: v, fault: fault, name: name, healthy: healthy}
					t.Cleanup(func() { inv.Say().Disengage(name, backends.ReasonDeleted) })
					switch moment {
					case "connecting":
						c.atConnecting(t)
					case "syncing":
						c.atSyncing(t)
					case "engaged":
						c.whileEngaged(t)
					case "swapping":
						c.whileSwapping(t)
					case "removing":
						c.whileRemoving(t)
					}
				})
			}
		}
	})
	if s := f.Status("x/healthy"); s.State != backends.Engaged {
		t.Errorf("the healthy member is %s (%s) in the end", s.State, s.Reason)
	}
}

type faultCase struct {
	*endtoend.Fleet
	inv     *endtoend.Inventory
	victim  *victim
	fault   fault
	name    string
	healthy *fakeapi.Cluster
}

func (c *faultCase) public() string { return "x/" + c.name }

func (c *faultCase) engage(token string) {
	c.inv.Say().Engage(endtoend.FakeMember(c.victim.Cluster, c.victim.proxy.Addr(), c.victim.server, c.name, token))
}

// well waits until the victim is engaged, healthy and reconciled.
func (c *faultCase) well(t *testing.T, what string) {
	t.Helper()
	endtoend.Eventually(t, what+": ready", func() bool { return c.Is(c.public(), backends.Engaged, backends.ReasonReady) })
	key := endtoend.PutConfigMap(t, c.victim.Cluster, "victim")
	endtoend.Eventually(t, what+": reconciled", func() bool { return c.Saw(c.public(), key) > 0 })
}

// unharmed makes sure that the healthy member is reconciled now.
func (c *faultCase) unharmed(t *testing.T) {
	t.Helper()
	key := endtoend.PutConfigMap(t, c.healthy, c.name)
	endtoend.Eventually(t, "the healthy member is reconciled", func() bool { return c.Saw("x/healthy", key) > 0 })
}

func (c *faultCase) atConnecting(t *testing.T) {
	c.fault.make(t, c.victim)
	c.engage(goodToken)
	if c.fault.atConnect != "" {
		endtoend.Eventually(t, "the reason is shown", func() bool { return c.Is(c.public(), backends.Connecting, c.fault.atConnect) })
	}
	c.unharmed(t)
	c.fault.mend(t, c.victim)
	c.well(t, "mended")
}

// atSyncing has the victim's first list hang, makes the fault, and lets the list go on.
func (c *faultCase) atSyncing(t *testing.T) {
	c.victim.SetFault("/api/v1/configmaps", fakeapi.Fault{Hang: true})
	c.engage(goodToken)
	endtoend.Eventually(t, "syncing", func() bool { return c.Is(c.public(), backends.Engaged, backends.ReasonSyncing) })
	c.victim.ClearFaults()
	c.fault.make(t, c.victim)
	c.unharmed(t)
	c.fault.mend(t, c.victim)
	mode(faultproxy.Reset)(t, c.victim) // the list that hangs is cut
	mode(faultproxy.Pass)(t, c.victim)
	c.well(t, "mended")
}

func (c *faultCase) whileEngaged(t *testing.T) {
	c.engage(goodToken)
	c.well(t, "before")
	c.fault.make(t, c.victim)
	if c.fault.interrupted {
		endtoend.Eventually(t, "the trouble is shown", func() bool {
			s := c.Status(c.public())
			return s.State == backends.Degraded || s.State == backends.Disconnected
		})
	}
	c.unharmed(t)
	c.fault.mend(t, c.victim)
	c.well(t, "mended")
}

func (c *faultCase) whileSwapping(t *testing.T) {
	c.engage(goodToken)
	c.well(t, "before")
	c.fault.make(t, c.victim)
	c.engage(nextToken)
	if c.fault.atSwap != "" {
		endtoend.Eventually(t, "the trouble is shown", func() bool {
			s := c.Status(c.public())
			return s.State == backends.Degraded || s.State == backends.Disconnected
		})
	}
	c.unharmed(t)
	c.fault.mend(t, c.victim)
	c.well(t, "mended")
	endtoend.Eventually(t, "the new credential is in force", func() bool {
		config, err := c.RESTConfigFor(t.Context(), endtoend.Name(c.public()))
		return err == nil && config.BearerToken == nextToken
	})
}

func (c *faultCase) whileRemoving(t *testing.T) {
	c.engage(goodToken)
	c.well(t, "before")
	c.fault.make(t, c.victim)
	c.inv.Say().Disengage(c.name, backends.ReasonDeleted)
	c.unharmed(t)
	endtoend.Eventually(t, "nothing is left", func() bool { return c.Status(c.public()).Name == "" })
}
