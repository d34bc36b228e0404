package aggregate_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// says asks a check for /readyz, and returns what it says; "ready" if it has nothing to say.
func says(check func(*http.Request) error) string {
	if err := check(nil); err != nil {
		return strings.TrimPrefix(err.Error(), "fleet not ready: ")
	}
	return "ready"
}

// A fleet is ready when every backend has told what it lists, or when that takes too long.
func TestReadyWhenBackendsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := aggregate.New(aggregate.Options{Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		ready, bounded, late := p.ReadyCheck(time.Hour), p.ReadyCheck(time.Minute), p.ReadyCheck(0)
		expect := func(check func(*http.Request) error, want string) {
			t.Helper()
			synctest.Wait()
			if got := says(check); got != want {
				t.Errorf("it says %q, want %q", got, want)
			}
		}
		inventories := map[string]*endtoend.Inventory{}
		for _, name := range []string{"capi", "files"} {
			inventories[name] = endtoend.NewInventory()
			if err := p.Add(name, inventories[name], aggregate.BackendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		expect(ready, "the provider does not run")
		time.Sleep(2 * time.Hour) // which count for nothing
		expect(bounded, "the provider does not run")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- p.Start(ctx, awareFunc(func(context.Context, multicluster.ClusterName, cluster.Cluster) error { return nil }))
		}()
		expect(ready, "waiting for backends capi, files")
		expect(bounded, "waiting for backends capi, files")

		files := inventories["files"].Say()
		files.Hold("pending", backends.Hold{Reason: backends.ReasonPaused})
		files.Hold("rejected", backends.Hold{Reason: backends.ReasonPolicyViolation, Rejected: true})
		files.Synced()
		inventories["capi"].Say().Report(backends.Health{Reason: backends.ReasonHubUnreachable})
		expect(ready, `waiting for backends capi ("HubUnreachable")`)

		time.Sleep(59 * time.Second)
		expect(bounded, `waiting for backends capi ("HubUnreachable")`)
		time.Sleep(time.Second)
		expect(bounded, "ready")
		expect(ready, `waiting for backends capi ("HubUnreachable")`)

		expect(late, `waiting for backends capi ("HubUnreachable")`) // asked for the first time
		time.Sleep(2 * time.Minute)
		expect(late, "ready")

		inventories["capi"].Say().Synced()
		expect(ready, "ready")
		if err := p.Add("another", endtoend.NewInventory(), aggregate.BackendOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(ready, "ready") // for ever
		expect(p.ReadyCheck(0), "waiting for backends another")
		if err := p.Remove(t.Context(), "another"); err != nil {
			t.Fatal(err)
		}
		expect(p.ReadyCheck(0), "ready")

		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expect(ready, "ready")
		expect(p.ReadyCheck(0), "the provider does not run")
	})
}

// A fleet is ready when every cluster that can be reached is engaged and has synced; those that cannot do not count.
func TestReadyWhenReachableClustersSynced(t *testing.T) {
	server := endtoend.Fakes(t)
	silent := endtoend.Silent(t)
	f := endtoend.Start(t, aggregate.Options{
		ConnectTimeout: 10 * time.Minute,                             // a silent cluster stays in its first attempt
		RetryBase:      10 * time.Minute, RetryMax: 10 * time.Minute, // and a dead one waits for its second
	})
	check := f.ReadyCheck(time.Hour)
	inv := f.Declare(t, "x")
	if got := says(check); got != "waiting for backends x" {
		t.Errorf("before the backend is synced: it says %q", got)
	}
	syncs := server.Cluster("syncs")
	syncs.SetFault("/api/v1/configmaps", fakeapi.Fault{Status: http.StatusInternalServerError})
	for name, addr := range map[string]string{"good": server.Addr(), "syncs": server.Addr(), "dead": "127.0.0.1:1"} {
		inv.Say().Engage(endtoend.FakeMember(server.Cluster(name), addr, server, name, "token"))
	}
	for i := range 5 {
		name := fmt.Sprint("silent-", i)
		inv.Say().Engage(endtoend.FakeMember(server.Cluster(name), silent, server, name, "token"))
	}
	inv.Say().Hold("held", backends.Hold{Reason: backends.ReasonPaused})
	inv.Say().Synced()
	endtoend.Eventually(t, "one engaged", func() bool { return f.Engaged("x/good") })
	endtoend.Eventually(t, "one dead", func() bool { return f.Status("x/dead").Attempt > 0 })
	endtoend.Eventually(t, "one syncing", func() bool { return f.Is("x/syncs", backends.Engaged, backends.ReasonSyncing) })
	if got, want := says(check), `waiting for clusters (6): "x/silent-0", "x/silent-1", "x/silent-2", …`; got != want {
		t.Errorf("beside silent clusters: it says %q, want %q", got, want)
	}
	for i := range 5 {
		inv.Say().Disengage(fmt.Sprint("silent-", i), backends.ReasonDeleted)
	}
	endtoend.Eventually(t, "the silent ones are gone", func() bool { return f.Status("x/silent-4").Name == "" })
	if got, want := says(check), `waiting for clusters (1): "x/syncs"`; got != want {
		t.Errorf("beside a cluster that syncs: it says %q, want %q", got, want)
	}
	syncs.ClearFaults()
	endtoend.Eventually(t, "ready", func() bool { return says(check) == "ready" })
	if !f.Engaged("x/syncs") {
		t.Errorf("ready, and the last cluster is %+v", f.Status("x/syncs"))
	}
	if _, err := f.Get(t.Context(), "x/dead"); err == nil {
		t.Error("the dead cluster lives")
	}
	inv.Say().Engage(endtoend.FakeMember(server.Cluster("late"), silent, server, "late", "token"))
	if got := says(check); got != "ready" {
		t.Errorf("a cluster that came later: it says %q", got)
	}
}

// A process that stands by is ready when it is connected, so that a rollout need not wait for it to lead.
func TestReadyOnStandby(t *testing.T) {
	p, err := aggregate.New(aggregate.Options{Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	inv := endtoend.NewInventory()
	if err := p.Add("x", inv, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	aware := awareFunc(func(_ context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
		t.Errorf("%s was handed over", name)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Standby(aware).Start(ctx) }()
	<-inv.Running
	check, server := p.ReadyCheck(time.Hour), endtoend.Fakes(t)
	if got := says(check); got != "waiting for backends x" {
		t.Errorf("before the backend is synced: it says %q", got)
	}
	inv.Say().Engage(endtoend.FakeMember(server.Cluster("c"), server.Addr(), server, "c", "token"))
	inv.Say().Synced()
	endtoend.Eventually(t, "ready", func() bool { return says(check) == "ready" })
	if s := p.Clusters()[0]; s.State != backends.Engaged || s.Reason != backends.ReasonStandby {
		t.Errorf("ready, and the cluster is %+v", s)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
