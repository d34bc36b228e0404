//go:build unix

package aggregate_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
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
// members, for -fleet (default 50), and for as many among which there are others that are dead, one in ten: they accept
// connections and never answer. The healthy ones are waited for.
//
// The floor is the same without an engine: a bare controller-runtime cluster with nothing but an informer for each
// member, all at once, without limit or question. Its processor time tells what a fleet of a thousand costs at least
// where processors are few: server, proxies and clients share this machine's.
func BenchmarkEngage(b *testing.B) {
	plane := planes.Get(b, controlplane.Options{Name: "bench"})
	proxies := startProxies(b, plane, max(20, *fleetSize))
	var mixed []*faultproxy.Proxy
	for i, p := range proxies[:*fleetSize] {
		if mixed = append(mixed, p); i%9 == 4 {
			dead := startProxies(b, plane, 1)[0]
			if err := dead.SetMode(faultproxy.Blackhole); err != nil {
				b.Fatal(err)
			}
			mixed = append(mixed, dead)
		}
	}
	spec, err := connection.ParseKubeconfig(b.Context(), plane.Kubeconfig(), connection.KubeconfigOptions{})
	if err != nil {
		b.Fatal(err)
	}
	all := proxies[:*fleetSize]
	alive := func() cost { return engageAll(b, spec.Spec, all) }
	dying := func() cost { return engageAll(b, spec.Spec, mixed) }
	syncBare(b, plane, all) // so that the server knows everything by heart
	var took struct{ few, many, dying, floor []float64 }
	var few, dead, floor, processor []float64
	for i := 0; b.Loop(); i++ {
		c20 := engageAll(b, spec.Spec, proxies[:20])
		var many, some cost
		if i%2 == 0 { // whoever comes second is better off
			many, some = alive(), dying()
		} else {
			some, many = dying(), alive()
		}
		bare := syncBare(b, plane, all)
		took.few = append(took.few, c20.wall.Seconds())
		took.many = append(took.many, many.wall.Seconds())
		took.dying = append(took.dying, some.wall.Seconds())
		took.floor = append(took.floor, bare.wall.Seconds())
		few = append(few, many.wall.Seconds()/c20.wall.Seconds())
		dead = append(dead, some.wall.Seconds()/many.wall.Seconds())
		floor = append(floor, many.wall.Seconds()/bare.wall.Seconds())
		processor = append(processor, many.processor.Seconds()/bare.processor.Seconds())
	}
	b.ReportMetric(median(took.few), "s/20")
	b.ReportMetric(median(took.many), fmt.Sprintf("s/%d", *fleetSize))
	b.ReportMetric(median(took.dying), "s/10%dead")
	b.ReportMetric(median(took.floor), "s/floor")
	b.ReportMetric(median(few), "x-20")
	b.ReportMetric(median(dead), "x-none-dead")
	b.ReportMetric(median(floor), "x-floor")
	b.ReportMetric(median(processor), "x-floor-processor")
	b.ReportMetric(0, "ns/op") // of all together: says nothing
}

// cost is what something took.
type cost struct {
	wall      time.Duration
	processor time.Duration // of this process: clients and proxies, not the server
}

// measure starts measuring, and returns how to stop.
func measure(b *testing.B) func() cost {
	processor := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	runtime.GC() // what was before is not to be paid for here
	began, used := time.Now(), processor()
	return func() cost { return cost{time.Since(began), processor() - used} }
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

// oneNamespace limits caches to the namespace default.
func oneNamespace(o *cluster.Options) {
	o.Cache.ByObject = map[client.Object]cache.ByObject{
		&corev1.Namespace{}: {Field: fields.OneTermEqualSelector("metadata.name", "default")},
	}
}

// engageAll has a new fleet engage the members behind the proxies, and returns how long it takes until all that are alive
// have been reconciled. Making and ending the fleet is not counted.
func engageAll(b *testing.B, spec connection.Spec, proxies []*faultproxy.Proxy) cost {
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
	stop := measure(b)
	for _, m := range members {
		f.say.Engage(m)
	}
	left.Wait()
	took := stop()
	if _, err := f.Get(b.Context(), multicluster.ClusterName("x/c0")); err != nil {
		b.Fatal(err)
	}
	return took
}

// syncBare syncs a bare cluster behind every proxy at once, and returns how long that takes.
func syncBare(b *testing.B, plane *controlplane.ControlPlane, proxies []*faultproxy.Proxy) cost {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var running, syncing sync.WaitGroup
	defer running.Wait()
	defer cancel()
	stop := measure(b)
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
	return stop()
}
