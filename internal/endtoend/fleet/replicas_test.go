package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// replica is one of several processes with the same fleet, of which one at a time leads.
type replica struct {
	*endtoend.Fleet
	inv *endtoend.Inventory
}

func startReplica(t *testing.T, hub *controlplane.ControlPlane, lease string, members []backends.Cluster) *replica {
	t.Helper()
	r := &replica{inv: endtoend.NewInventory()}
	r.Fleet = endtoend.Start(t, aggregate.Options{}, endtoend.WithHub(hub), endtoend.WithManager(func(o *mcmanager.Options) {
		o.LeaderElection = true
		o.LeaderElectionID = lease
		o.LeaderElectionNamespace = "default"
		o.LeaderElectionResourceLock = resourcelock.LeasesResourceLock
		o.LeaderElectionReleaseOnCancel = true
		o.RetryPeriod = new(200 * time.Millisecond)
	}), endtoend.Before(func(f *endtoend.Fleet) {
		if err := f.Add("x", r.inv, aggregate.BackendOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := f.Manager.GetLocalManager().Add(f.Standby(f.Manager)); err != nil {
			t.Fatal(err)
		}
	}))
	<-r.inv.Running
	for _, m := range members {
		r.inv.Say().Engage(m)
	}
	r.inv.Say().Synced()
	return r
}

// A process that does not lead keeps a proved connection to every cluster, and asks nothing of them but whether they are alive. When the
// leader goes, it has only to hand them to its controllers.
func TestNewLeader(t *testing.T) {
	const clusters = 30
	hub := planes.Get(t, controlplane.Options{Name: "one"})
	server := endtoend.Fakes(t)
	var (
		fakes   []*fakeapi.Cluster
		members []backends.Cluster
		keys    []string
	)
	for i := range clusters {
		name := fmt.Sprintf("c%02d", i)
		fake := server.Cluster(name)
		fake.AllowToken("token", "user")
		fakes, members = append(fakes, fake), append(members, endtoend.FakeMember(fake, server.Addr(), server, name, "token"))
		keys = append(keys, endtoend.PutConfigMap(t, fake, "here"))
	}
	lease := endtoend.Unique("lease")
	public := func(i int) string { return fmt.Sprintf("x/c%02d", i) }

	var follower *replica
	outer := t
	t.Run("leader", func(t *testing.T) {
		leader := startReplica(t, hub, lease, members)
		for i := range clusters {
			endtoend.Eventually(t, "the leader has reconciled", func() bool { return leader.Saw(public(i), keys[i]) > 0 && leader.Engaged(public(i)) })
		}
		for _, fake := range fakes {
			fake.Counter.Reset()
		}
		follower = startReplica(outer, hub, lease, members)
		for i := range clusters {
			endtoend.Eventually(t, "the follower is connected", func() bool {
				return follower.Is(public(i), backends.Engaged, backends.ReasonStandby)
			})
		}
		for i, fake := range fakes {
			n := fake.Counter.Count(func(r faultproxy.Request) bool { return r.Verb != faultproxy.Other })
			if n > 0 || follower.Saw(public(i), keys[i]) > 0 {
				t.Errorf("%s: the follower lists or watches: %v", public(i), fake.Counter.Requests())
			}
		}
	}) // here the leader's process ends

	<-follower.Manager.GetLocalManager().Elected()
	began := time.Now()
	for i := range clusters {
		endtoend.Eventually(t, "the new leader has reconciled", func() bool { return follower.Saw(public(i), keys[i]) > 0 })
	}
	t.Logf("%d clusters reconciled %v after the new lease", clusters, time.Since(began))
	for i, fake := range fakes {
		connects := fake.Counter.Count(func(r faultproxy.Request) bool { return r.Path == "/version" })
		if connects != 1 { // the follower's own, long before
			t.Errorf("%s: the new leader connected anew: %d connections", public(i), connects)
		}
		endtoend.Eventually(t, "all is well", func() bool { return follower.Engaged(public(i)) })
	}
}

// Clusters that are engaged before and after the controllers start, under leader election and with a short
// ReconciliationTimeout, are all engaged, and a silent one among them kills nothing.
func TestLeaderElectionAndTimeouts(t *testing.T) {
	hub := planes.Get(t, controlplane.Options{Name: "one"})
	server := endtoend.Fakes(t)
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithHub(hub), endtoend.WithManager(func(o *mcmanager.Options) {
		o.LeaderElection = true
		o.LeaderElectionID = endtoend.Unique("lease")
		o.LeaderElectionNamespace = "default"
		o.LeaderElectionResourceLock = resourcelock.LeasesResourceLock
		o.LeaderElectionReleaseOnCancel = true
		o.Controller.ReconciliationTimeout = 2 * time.Second
	}))
	inv := endtoend.NewInventory()
	if err := f.Add("x", inv, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	<-inv.Running
	hung := server.Cluster("hung")
	hung.SetFault("/api/v1/configmaps", fakeapi.Fault{Hang: true})
	inv.Say().Engage(endtoend.FakeMember(hung, server.Addr(), server, "hung", "token"))
	for i := range 20 {
		name := fmt.Sprint("c", i)
		fake := server.Cluster(name)
		key := endtoend.PutConfigMap(t, fake, "here")
		inv.Say().Engage(endtoend.FakeMember(fake, server.Addr(), server, name, "token"))
		if i == 10 {
			endtoend.Eventually(t, "one is reconciled, so the controllers run", func() bool { return f.Saw("x/c10", key) > 0 })
		}
	}
	for i := range 20 {
		endtoend.Eventually(t, "engaged", func() bool { return f.Is(fmt.Sprint("x/c", i), backends.Engaged, backends.ReasonReady) })
	}
	if s := f.Status("x/hung"); s.State != backends.Engaged || s.Reason != backends.ReasonSyncing {
		t.Errorf("the one that hangs: %s (%s)", s.State, s.Reason)
	}
}
