package aggregate_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// roundTrip is how far away the members of BenchmarkEngage are.
const roundTrip = 50 * time.Millisecond

// BenchmarkEngage measures how long a fleet takes from being listed until a controller has reconciled an object in every member.
// The members are one real API server behind a proxy each, which makes it 50 ms away. It is measured by turns for 20
// members, for -fleet (default 100), and for as many of which every tenth is dead: it accepts connections and never
// answers. Then the healthy nine tenths are waited for.
//
// The last column is the floor: the same, by one goroutine a member without any limit or question, each with a bare
// controller-runtime cluster and nothing but an informer.
func BenchmarkEngage(b *testing.B) {
	plane := planes.Get(b, controlplane.Options{Name: "bench"})
	proxies := startProxies(b, plane, max(20, *fleetSize))
	spec, err := connection.ParseKubeconfig(b.Context(), plane.Kubeconfig(), connection.KubeconfigOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var few, many, dying, floor []time.Duration
	var ratios, deadRatios, floorRatios []float64
	for b.Loop() {
		few = append(few, engageAll(b, spec.Spec, proxies[:20]))
		alive := engageAll(b, spec.Spec, proxies[:*fleetSize])
		many = append(many, alive)
		kill(b, proxies[:*fleetSize], faultproxy.Blackhole)
		some := engageAll(b, spec.Spec, proxies[:*fleetSize])
		kill(b, proxies[:*fleetSize], faultproxy.Pass)
		dying = append(dying, some)
		bare := syncBare(b, plane, proxies[:*fleetSize])
		floor = append(floor, bare)
		ratios = append(ratios, float64(alive)/float64(few[len(few)-1]))
		deadRatios = append(deadRatios, float64(some)/float64(alive))
		floorRatios = append(floorRatios, float64(alive)/float64(bare))
	}
	b.ReportMetric(median(few).Seconds(), "s/20")
	b.ReportMetric(median(many).Seconds(), fmt.Sprintf("s/%d", *fleetSize))
	b.ReportMetric(median(ratios), "x-of-20")
	b.ReportMetric(median(dying).Seconds(), "s/10%dead")
	b.ReportMetric(median(deadRatios), "x-of-none-dead")
	b.ReportMetric(median(floor).Seconds(), "s/floor")
	b.ReportMetric(median(floorRatios), "x-of-floor")
	b.ReportMetric(0, "ns/op") // of all together: says nothing
}

func startProxies(b *testing.B, plane *controlplane.ControlPlane, n int) []*faultproxy.Proxy {
	b.Helper()
	proxies := make([]*faultproxy.Proxy, n)
	for i := range proxies {
		p, err := faultproxy.Start(strings.TrimPrefix(plane.URL(), "https://"), faultproxy.Options{Delay: roundTrip / 2})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.Close)
		proxies[i] = p
	}
	return proxies
}

// kill sets the mode of every tenth proxy.
func kill(b *testing.B, proxies []*faultproxy.Proxy, mode faultproxy.Mode) {
	b.Helper()
	for i := 5; i < len(proxies); i += 10 {
		if err := proxies[i].SetMode(mode); err != nil {
			b.Fatal(err)
		}
		proxies[i].ResetConnections()
	}
}

// oneNamespace limits caches to the namespace default.
func oneNamespace(o *cluster.Options) {
	o.Cache.ByObject = map[client.Object]cache.ByObject{
		&corev1.Namespace{}: {Field: fields.OneTermEqualSelector("metadata.name", "default")},
	}
}

// engageAll has a new fleet engage the members behind the proxies, and returns how long it takes until all that are alive
// have been reconciled. Making and ending the fleet is not counted.
func engageAll(b *testing.B, spec connection.Spec, proxies []*faultproxy.Proxy) time.Duration {
	b.Helper()
	left := sync.WaitGroup{}
	var seen sync.Map
	f := startFleet(b, aggregate.Options{ClusterOptions: []cluster.Option{oneNamespace}}, func(mgr mcmanager.Manager) error {
		return mcbuilder.ControllerManagedBy(mgr).Named("namespaces").For(&corev1.Namespace{}).
			WithOptions(controller.TypedOptions[mcreconcile.Request]{MaxConcurrentReconciles: 4, SkipNameValidation: new(true)}).
			Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
				cl, err := mgr.GetCluster(ctx, req.ClusterName)
				if err != nil {
					return ctrl.Result{}, err
				}
				if err := cl.GetClient().Get(ctx, req.NamespacedName, &corev1.Namespace{}); err != nil {
					return ctrl.Result{}, err
				}
				if _, again := seen.LoadOrStore(req.ClusterName, true); !again {
					left.Done()
				}
				return ctrl.Result{}, nil
			}))
	})
	defer f.end()
	members := make([]backends.Cluster, len(proxies))
	for i, p := range proxies {
		members[i] = backends.Cluster{Name: fmt.Sprint("c", i), Connection: spec}
		members[i].Connection.Endpoint.Server = "https://" + p.Addr()
		if p.Mode() == faultproxy.Pass {
			left.Add(1)
		}
	}
	began := time.Now()
	for _, m := range members {
		f.say.Engage(m)
	}
	left.Wait()
	took := time.Since(began)
	if _, err := f.Get(b.Context(), multicluster.ClusterName("x/c0")); err != nil {
		b.Fatal(err)
	}
	return took
}

// syncBare syncs a bare cluster behind every proxy at once, and returns how long that takes.
func syncBare(b *testing.B, plane *controlplane.ControlPlane, proxies []*faultproxy.Proxy) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var running, syncing sync.WaitGroup
	defer running.Wait()
	defer cancel()
	began := time.Now()
	for i, p := range proxies {
		syncing.Go(func() {
			config := plane.Config()
			config.Host = "https://" + p.Addr()
			config.CAData = fmt.Appendf(config.CAData[:len(config.CAData):len(config.CAData)], "\n# %d", i) // or client-go shares its transports
			cl, err := cluster.New(config, oneNamespace)
			if err != nil {
				b.Error(err)
				return
			}
			informer, err := cl.GetCache().GetInformer(ctx, &corev1.Namespace{})
			if err != nil {
				b.Error(err)
				return
			}
			seen := make(chan struct{})
			if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { close(seen) }}); err != nil {
				b.Error(err)
				return
			}
			running.Go(func() {
				if err := cl.Start(ctx); err != nil {
					b.Error(err)
				}
			})
			<-seen
		})
	}
	syncing.Wait()
	return time.Since(began)
}
