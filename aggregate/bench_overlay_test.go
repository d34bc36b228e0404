package aggregate_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// BenchmarkHandover measures the move of a whole fleet from one backend to another under the same prefix: every cluster gets
// another credential, and the controller's watches go on where they were. The clusters are fake, in this process, so that
// their part of the work is in the processor time.
//
//	go test -run '^$' -bench Handover -benchtime 10x ./aggregate -fleet 1000
func BenchmarkHandover(b *testing.B) {
	n := *fleetSize
	f := startFleet(b, aggregate.Options{}, watchConfigMaps)
	server := fakeapi.NewServer()
	b.Cleanup(server.Close)
	second := endtoend.NewInventory()
	if err := f.Add("y", second, aggregate.BackendOptions{Prefix: "x"}); err != nil {
		b.Fatal(err)
	}
	<-second.Running
	f.say.Synced()
	fakes := make([]*fakeapi.Cluster, n)
	say := func(e backends.Engager, token string) {
		for i, fake := range fakes {
			e.Engage(endtoend.FakeMember(fake, server.Addr(), server, fmt.Sprint("c", i), token))
		}
	}
	for i := range fakes {
		fakes[i] = server.Cluster(fmt.Sprint("c", i))
		fakes[i].AllowToken("first", "user")
		fakes[i].AllowToken("second", "user")
	}
	say(f.say, "first")
	await(b, "every cluster is engaged", func() bool { return f.engaged() == n })
	say(second.Say(), "second")
	await(b, "every cluster could move", func() bool {
		report, err := f.Migration("x", "y")
		return err == nil && report.Count(aggregate.OutcomeReady) == n
	})
	for _, fake := range fakes {
		fake.Counter.Reset()
	}
	order := []string{"x", "y"}
	var wall, processor []time.Duration
	for b.Loop() {
		slices.Reverse(order)
		stop := measure(b)
		if err := f.Arrange("x", order...); err != nil {
			b.Fatal(err)
		}
		await(b, "every cluster has moved", func() bool {
			report, err := f.Migration(order[1], order[0])
			return err == nil && report.Count(aggregate.OutcomeMoved) == n
		})
		c := stop()
		wall, processor = append(wall, c.wall), append(processor, c.processor)
	}
	lists := 0
	for _, fake := range fakes {
		lists += fake.Counter.Relists()
	}
	if lists > 0 || f.engaged() != n {
		b.Fatalf("%d lists, %d of %d clusters engaged", lists, f.engaged(), n)
	}
	b.ReportMetric(float64(median(wall).Microseconds())/1000, "ms/handover")
	b.ReportMetric(float64(median(processor).Microseconds())/1000/float64(n), "cpu-ms/cluster")
	b.ReportMetric(float64(lists), "lists")
	b.ReportMetric(0, "ns/op") // with the waiting between looks: says nothing
}

// BenchmarkBackendComesAndGoes measures what a backend with many clusters does to the others when it is added and removed: the
// longest Get, and the time until another backend's new cluster is engaged, beside both while nothing else happens.
//
//	go test -run '^$' -bench ComesAndGoes -benchtime 5x ./aggregate -fleet 1000
func BenchmarkBackendComesAndGoes(b *testing.B) {
	n := *fleetSize
	f := startFleet(b, aggregate.Options{}, watchConfigMaps)
	server := fakeapi.NewServer()
	b.Cleanup(server.Close)
	member := func(name string) backends.Cluster {
		c := server.Cluster(name)
		c.AllowToken("token", "user")
		return endtoend.FakeMember(c, server.Addr(), server, name, "token")
	}
	f.say.Engage(member("steady"))
	await(b, "engaged", func() bool { return f.engaged() == 1 })
	many := make([]backends.Cluster, n)
	for i := range many {
		many[i] = member(fmt.Sprint("many", i))
	}
	newcomers := 0
	// engage returns how long another backend's new cluster takes until it is engaged.
	engage := func() time.Duration {
		name := fmt.Sprint("new", newcomers%100)
		newcomers++
		c := member(name)
		began := time.Now()
		f.say.Engage(c)
		public := endtoend.Name("x/" + name)
		await(b, "the new cluster is engaged", func() bool {
			_, err := f.Get(b.Context(), public)
			return err == nil
		})
		took := time.Since(began)
		f.say.Disengage(name, backends.ReasonDeleted)
		return took
	}
	var idle, busy, gets, idleGets, adds, removes []time.Duration
	for b.Loop() {
		stop := watchGets(b, f)
		for range 10 {
			idle = append(idle, engage())
		}
		idleGets = append(idleGets, stop())

		stop = watchGets(b, f)
		came := time.Now()
		inv := endtoend.NewInventory()
		if err := f.Add("many", inv, aggregate.BackendOptions{}); err != nil {
			b.Fatal(err)
		}
		<-inv.Running
		for _, c := range many {
			inv.Say().Engage(c)
		}
		busy = append(busy, engage())
		await(b, "all are engaged", func() bool { return f.engaged() == n+1 })
		adds = append(adds, time.Since(came))
		went := time.Now()
		if err := f.Remove(b.Context(), "many"); err != nil {
			b.Fatal(err)
		}
		removes = append(removes, time.Since(went))
		gets = append(gets, stop())
	}
	ms := func(all []time.Duration) float64 { return float64(median(all).Microseconds()) / 1000 }
	b.ReportMetric(ms(adds), "ms/add")
	b.ReportMetric(ms(removes), "ms/remove")
	b.ReportMetric(ms(idle), "idle-ms/engage")
	b.ReportMetric(ms(busy), "ms/engage")
	b.ReportMetric(float64(median(idleGets).Microseconds()), "idle-µs/slow-get")
	b.ReportMetric(float64(median(gets).Microseconds()), "µs/slow-get")
	b.ReportMetric(0, "ns/op") // of all together: says nothing
}

// watchGets calls Get all the time in a goroutine of its own, and returns how to stop: it answers with the 99.9th percentile.
func watchGets(b *testing.B, f *benchFleet) func() time.Duration {
	var (
		wg   sync.WaitGroup
		over atomic.Bool
		took []time.Duration
	)
	wg.Go(func() {
		for first := true; first || !over.Load(); first = false {
			began := time.Now()
			if _, err := f.Get(b.Context(), "x/steady"); err != nil {
				b.Error(err)
				return
			}
			took = append(took, time.Since(began))
			time.Sleep(100 * time.Microsecond) // a reconciler's pace: not to take a core from what is measured
		}
	})
	return func() time.Duration {
		over.Store(true)
		wg.Wait()
		slices.Sort(took)
		return took[int(math.Ceil(0.999*float64(len(took))))-1]
	}
}

// watchConfigMaps adds a controller of ConfigMaps that does nothing.
func watchConfigMaps(mgr mcmanager.Manager) error {
	return mcbuilder.ControllerManagedBy(mgr).Named(endtoend.Unique("configmaps")).For(&corev1.ConfigMap{}).
		Complete(mcreconcile.Func(func(context.Context, mcreconcile.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }))
}
