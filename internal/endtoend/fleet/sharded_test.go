//go:build !race

package fleet_test

// Not under the race detector: the coordinator's leaseGuard of multicluster-runtime v0.24.1 has data races of its own
// (its fields are written by Release, which runs in a goroutine that nobody waits for, and by TryAcquire).

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded/peers"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded/sharder"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// peersOf is what one replica knows of the replicas: what the test says.
type peersOf struct {
	self string
	all  *atomic.Pointer[[]string]
}

func (p peersOf) Self() sharder.PeerInfo { return sharder.PeerInfo{ID: p.self, Weight: 1} }

func (p peersOf) Snapshot() (list []sharder.PeerInfo) {
	for _, id := range *p.all.Load() {
		list = append(list, sharder.PeerInfo{ID: id, Weight: 1})
	}
	return list
}

func (p peersOf) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

var _ peers.Registry = peersOf{}

// Under multicluster-runtime's sharded coordinator, each cluster is reconciled by one of two replicas. A cluster that goes does not take
// along those that the coordinator has started under its context, and what a replica had that ends, the other one takes over.
func TestShards(t *testing.T) {
	const clusters = 16
	hub := planes.Get(t, controlplane.Options{Name: "one"})
	server := endtoend.Fakes(t)
	var fakes []*fakeapi.Cluster
	for i := range clusters {
		fake := server.Cluster(fmt.Sprintf("s%02d", i))
		fake.AllowToken("token", "user")
		fakes = append(fakes, fake)
	}
	public := func(i int) string { return fmt.Sprintf("x/s%02d", i) }
	prefix := endtoend.Unique("shard")
	startReplica := func(t *testing.T, self string, all *atomic.Pointer[[]string]) (*endtoend.Fleet, *endtoend.Inventory) {
		t.Helper()
		kube, err := client.New(hub.Config(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // after the manager's end: the coordinator gives its leases up in goroutines that nobody waits for
			given := func(ctx context.Context) (bool, error) {
				var leases coordinationv1.LeaseList
				if err := kube.List(ctx, &leases, client.InNamespace("default")); err != nil {
					return false, err
				}
				return !slices.ContainsFunc(leases.Items, func(l coordinationv1.Lease) bool {
					return strings.HasPrefix(l.Name, prefix+"-") && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == self
				}), nil
			}
			if err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, endtoend.Patience, true, given); err != nil {
				t.Errorf("the leases of replica %s are not given up: %v", self, err)
			}
		})
		coordinator := sharded.New(kube, logr.Discard(),
			sharded.WithPeerRegistry(peersOf{self, all}), sharded.WithShardLease("default", prefix),
			sharded.WithSynchronizationIntervals(200*time.Millisecond, time.Second),
			sharded.WithLeaseTimings(3*time.Second, time.Second, 100*time.Millisecond))
		f := endtoend.Start(t, aggregate.Options{}, endtoend.WithHub(hub), endtoend.WithCoordinator(coordinator), endtoend.Before(func(f *endtoend.Fleet) {
			if err := f.Manager.Add(f.Sharded()); err != nil {
				t.Fatal(err)
			}
		}))
		inv := f.DeclareUnder(t, "x", aggregate.BackendOptions{Guard: aggregate.GuardOptions{Off: true}})
		for i, fake := range fakes {
			inv.Say().Engage(endtoend.FakeMember(fake, server.Addr(), server, fmt.Sprintf("s%02d", i), "token"))
		}
		inv.Say().Synced()
		return f, inv
	}
	// once makes sure that an object of every cluster is reconciled, and by one of the replicas only.
	once := func(t *testing.T, from int, replicas ...*endtoend.Fleet) (by map[int]*endtoend.Fleet) {
		t.Helper()
		by = map[int]*endtoend.Fleet{}
		for i := from; i < clusters; i++ {
			key := endtoend.PutConfigMap(t, fakes[i], "shard")
			endtoend.Eventually(t, public(i)+" is reconciled", func() bool {
				for _, r := range replicas {
					if r.Saw(public(i), key) > 0 {
						by[i] = r
					}
				}
				return by[i] != nil
			})
			for _, r := range replicas {
				if r != by[i] && r.Saw(public(i), key) > 0 {
					t.Errorf("%s is reconciled by two replicas", public(i))
				}
			}
		}
		return by
	}

	var known atomic.Pointer[[]string]
	known.Store(&[]string{"a", "b"})
	b, invB := startReplica(t, "b", &known)
	t.Run("both", func(t *testing.T) {
		a, invA := startReplica(t, "a", &known)
		shares := map[*endtoend.Fleet]int{}
		for _, r := range once(t, 0, a, b) {
			shares[r]++
		}
		if shares[a] == 0 || shares[b] == 0 {
			t.Errorf("shares of the replicas: %d and %d", shares[a], shares[b])
		}
		// The first ones go, one by one. Whichever cluster was started under their contexts goes on.
		for i := range 4 {
			for _, inv := range []*endtoend.Inventory{invA, invB} {
				inv.Say().Disengage(fmt.Sprintf("s%02d", i), backends.ReasonDeleted)
			}
			once(t, i+1, a, b)
		}
	}) // replica a ends here
	known.Store(&[]string{"b"})
	by := once(t, 4, b)
	if len(by) != clusters-4 {
		t.Errorf("%d clusters are reconciled by the replica that is left", len(by))
	}
}
