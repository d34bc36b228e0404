package aggregate_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/multi"
	"sigs.k8s.io/multicluster-runtime/providers/single"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// The benchmarks measure what the engine is to be good at. They report ratios of medians that are taken by turns in
// one run, so that whatever else the machine does hits both sides alike. All of them together, small, take well under a
// minute:
//
//	go test -run '^$' -bench . -benchtime 10x ./aggregate
//
// The full size, each alone and on a quiet machine (two open files a cluster and proxy: ulimit -n 16384):
//
//	go test -run '^$' -bench 'Get|Heartbeat' -benchtime 2000x ./aggregate
//	go test -run '^$' -bench Engage -benchtime 5x -timeout 30m ./aggregate -fleet 1000
//	go test -run '^$' -bench Memory ./aggregate -members 100

var fleetSize = flag.Int("fleet", 50, "clusters of BenchmarkEngage")

// benchFleet is a provider under a running manager, with one inventory. Its end is called by whoever starts it, so that a
// benchmark can have one after the other.
type benchFleet struct {
	*aggregate.Provider
	say backends.Engager
	end func()
}

// startFleet starts a fleet. prepare may add controllers to its manager, and may be nil.
func startFleet(b *testing.B, opts aggregate.Options, prepare func(mcmanager.Manager) error) *benchFleet {
	b.Helper()
	opts.Metrics = prometheus.NewRegistry()
	p, err := aggregate.New(opts)
	if err != nil {
		b.Fatal(err)
	}
	inv := endtoend.NewInventory()
	// Without the guard: a benchmark's clusters come and go.
	if err := p.Add("x", inv, aggregate.BackendOptions{Guard: aggregate.GuardOptions{Off: true}}); err != nil {
		b.Fatal(err)
	}
	mgr, err := mcmanager.New(endtoend.Hubless, p, mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard()})
	if err != nil {
		b.Fatal(err)
	}
	if prepare != nil {
		if err := prepare(mgr); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	<-inv.Running
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("manager: %v", err)
		}
	})
	b.Cleanup(end)
	return &benchFleet{p, inv.Say(), end}
}

// engaged counts the clusters in the state Engaged for the reason Ready.
func (f *benchFleet) engaged() (n int) {
	for _, c := range f.Clusters() {
		if c.State == backends.Engaged && c.Reason == backends.ReasonReady {
			n++
		}
	}
	return n
}

// await waits for a condition that is cheap to look at.
func await(b *testing.B, what string, condition func() bool) {
	b.Helper()
	for limit := time.Now().Add(10 * time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) || b.Context().Err() != nil {
			b.Fatalf("never came: %s", what)
		}
	}
}

func median[T time.Duration | float64](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// nanoseconds measures how long one of n calls in a row takes.
func nanoseconds(n int, call func()) float64 {
	began := time.Now()
	for range n {
		call()
	}
	return float64(time.Since(began)) / float64(n)
}

// inventoryEntry is a member as an inventory knows it: a connection as long as a real kubeconfig's, and labels.
func inventoryEntry(name, server string) backends.Cluster {
	pem := func(kind string, lines int) []byte {
		line := strings.Repeat("MIIBkTCB+wIJAKHHIG11", 3) + "Qabc\n"
		return []byte("-----BEGIN " + kind + "-----\n" + strings.Repeat(line, lines) + "-----END " + kind + "-----\n")
	}
	labels := map[string]string{}
	for i := range 12 {
		labels[fmt.Sprint("example.com/label-", i)] = fmt.Sprint("value-", i)
	}
	return backends.Cluster{
		Name: name,
		Connection: connection.Spec{
			Endpoint: connection.Endpoint{Server: server, CAData: pem("CERTIFICATE", 17)},
			Auth: connection.Auth{
				Token:                 connection.NewSecret(strings.Repeat("token-", 160)),
				ClientCertificateData: pem("CERTIFICATE", 18), ClientKeyData: connection.NewSecret(string(pem("RSA PRIVATE KEY", 26))),
			},
		},
		Info:   backends.Info{DisplayName: name, Manager: "bench", KubernetesVersion: "v1.36.3", Labels: labels, Annotations: maps.Clone(labels)},
		Source: backends.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: "fleet", Name: name, UID: "0b2f3f7e-7c4b-4f5b-9a43-0a1f2b3c4d5e"},
		Hints:  backends.Identity{MemberID: name},
	}
}

// engageFakes engages n members of the server and returns what was said of them, by number.
func engageFakes(b *testing.B, f *benchFleet, server *fakeapi.Server, n int) []backends.Cluster {
	b.Helper()
	all := make([]backends.Cluster, n)
	for i := range all {
		c := server.Cluster(fmt.Sprint("c", i))
		all[i] = endtoend.FakeMember(c, server.Addr(), server, fmt.Sprint("c", i), strings.Repeat("token-", 160))
		entry := inventoryEntry(all[i].Name, "")
		all[i].Info, all[i].Source, all[i].Hints = entry.Info, entry.Source, entry.Hints
		f.say.Engage(all[i])
	}
	await(b, "every member is engaged", func() bool { return f.engaged() == n })
	return all
}

// BenchmarkGet measures Provider.Get, which every reconcile begins with: on a fleet that is left alone, and on one whose
// other members come and go all the time. Beside it is upstream's aggregating provider (providers/multi), upon the provider
// with the fastest Get there is (providers/single). It derives a logger for every call, so it is measured with one as programs
// have it (JSON, level info, of which Get writes nothing), and with one that discards everything.
func BenchmarkGet(b *testing.B) {
	const members, batch = 100, 2000
	server := fakeapi.NewServer()
	b.Cleanup(server.Close)
	f := startFleet(b, aggregate.Options{}, nil)
	engageFakes(b, f, server, members)
	ctx, ours, theirs := b.Context(), multicluster.ClusterName("x/c50"), multicluster.ClusterName("x#c50")
	cl, err := f.Get(ctx, ours)
	if err != nil {
		b.Fatal(err)
	}
	newMulti := func(log logr.Logger) *multi.Provider {
		defer func(was logr.Logger) { crlog.Log = was }(crlog.Log)
		crlog.Log = log
		p := multi.New(multi.Options{})
		if err := p.AddProvider("x", single.New("c50", cl)); err != nil {
			b.Fatal(err)
		}
		return p
	}
	upstream := newMulti(logr.FromSlogHandler(slog.NewJSONHandler(io.Discard, nil)))
	quiet := newMulti(logr.Discard())

	measure := func(b *testing.B) {
		get := func(p multicluster.Provider, name multicluster.ClusterName) func() {
			return func() {
				if got, err := p.Get(ctx, name); got != cl || err != nil {
					b.Fatal(got, err)
				}
			}
		}
		getOurs, getTheirs, getQuiet := get(f.Provider, ours), get(upstream, theirs), get(quiet, theirs)
		var a, c, q, ratios, quietRatios []float64
		for b.Loop() {
			ns := nanoseconds(batch, getOurs)
			a = append(a, ns)
			c = append(c, nanoseconds(batch, getTheirs))
			q = append(q, nanoseconds(batch, getQuiet))
			ratios = append(ratios, c[len(c)-1]/ns)
			quietRatios = append(quietRatios, q[len(q)-1]/ns)
		}
		b.ReportMetric(median(a), "ns/get")
		b.ReportMetric(median(c), "multi-ns/get")
		b.ReportMetric(median(ratios), "x-multi")
		b.ReportMetric(median(q), "quiet-multi-ns/get")
		b.ReportMetric(median(quietRatios), "x-quiet-multi")
		b.ReportMetric(0, "ns/op") // of both together: says nothing
	}
	b.Run("idle", func(b *testing.B) {
		measure(b)
		b.ReportMetric(testing.AllocsPerRun(batch, func() { _, _ = f.Get(ctx, ours) }), "allocs/get")
	})
	b.Run("churn", func(b *testing.B) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		changes := 0
		wg.Go(func() {
			for ; ctx.Err() == nil; changes++ {
				name := fmt.Sprint("other", changes%200)
				f.say.Hold(name, backends.Hold{Reason: backends.ReasonNotReady})
				f.say.Engage(inventoryEntry(name, "https://127.0.0.1:1"))
				f.say.Disengage(name, backends.ReasonDeleted)
				runtime.Gosched()
			}
		})
		began := time.Now()
		measure(b)
		cancel()
		wg.Wait()
		b.ReportMetric(float64(changes)/time.Since(began).Seconds(), "changes/s")
	})
}

// BenchmarkHeartbeat measures what it costs to be told of a cluster what is known already: inventories do so at every resync
// and for every status that somebody writes.
func BenchmarkHeartbeat(b *testing.B) {
	const members, batch = 100, 200
	server := fakeapi.NewServer()
	b.Cleanup(server.Close)
	f := startFleet(b, aggregate.Options{}, nil)
	said := engageFakes(b, f, server, members)
	// A heartbeat brings equal data, and not the same.
	again := make([]backends.Cluster, len(said))
	for i, c := range said {
		c.Connection.Endpoint.CAData = slices.Clone(c.Connection.Endpoint.CAData)
		c.Connection.Auth.Token = connection.NewSecret(strings.Clone(c.Connection.Auth.Token.Reveal()))
		c.Info.Labels, c.Info.Annotations = maps.Clone(c.Info.Labels), maps.Clone(c.Info.Annotations)
		again[i] = c
	}
	next := 0
	beat := func() {
		f.say.Engage(again[next%members])
		next++
	}
	var took []float64
	for b.Loop() {
		took = append(took, nanoseconds(batch, beat))
	}
	b.ReportMetric(median(took), "ns/heartbeat")
	b.ReportMetric(testing.AllocsPerRun(batch, beat), "allocs/heartbeat")
	b.ReportMetric(0, "ns/op") // of a batch: says nothing
	if n := f.engaged(); n != members {
		b.Fatalf("%d of %d members engaged after heartbeats", n, members)
	}
}
