package aggregate_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	upstream "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"github.com/tributary-fleet/tributary/aggregate"
	secretbackend "github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

var membersFlag = flag.Int("members", 20, "clusters of BenchmarkMemory")

// kindsOfMembers are the sizes of the API surfaces that BenchmarkMemory compares.
var kindsOfMembers = []int{50, 2000}

// BenchmarkMemory measures what an engaged cluster with one informer costs: heap, stacks and goroutines, with 50 and with
// 2,000 kinds served, for Tributary's kubeconfig backend and for upstream's kubeconfig provider, upon the same Secrets
// of the same hub. Hub and members run in another process.
//
// What the first cluster costs is reported apart, since it also pays for what all share. All clusters serve the same
// kinds, as in a fleet that is managed alike.
func BenchmarkMemory(b *testing.B) {
	fakes := startFakes(b, *membersFlag)
	results := map[string]footprint{}
	for _, kinds := range kindsOfMembers {
		for _, provider := range []struct {
			name  string
			start starter
		}{{"tributary", startTributary}, {"upstream", startUpstream}} {
			run := fmt.Sprintf("%s/kinds=%d", provider.name, kinds)
			b.Run(run, func(b *testing.B) {
				first, each := engageFromSecrets(b, fakes, kinds, strings.ReplaceAll(run, "/", "-"), provider.start)
				results[run] = each
				for b.Loop() { // it is measured once, whatever -benchtime says
				}
				b.ReportMetric(first.bytes()/1024, "KiB/first")
				b.ReportMetric(each.heap/1024, "heap-KiB/cluster")
				b.ReportMetric(each.stacks/1024, "stack-KiB/cluster")
				b.ReportMetric(each.goroutines, "goroutines/cluster")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	b.Run("ratios", func(b *testing.B) {
		for b.Loop() { // nothing to repeat
		}
		of := func(name string, kinds int) footprint { return results[fmt.Sprintf("%s/kinds=%d", name, kinds)] }
		few, many := kindsOfMembers[0], kindsOfMembers[1]
		for _, kinds := range kindsOfMembers {
			b.ReportMetric(of("tributary", kinds).heap/of("upstream", kinds).heap, fmt.Sprintf("x-upstream-heap/%d-kinds", kinds))
			b.ReportMetric(of("tributary", kinds).bytes()/of("upstream", kinds).bytes(), fmt.Sprintf("x-upstream/%d-kinds", kinds))
		}
		b.ReportMetric(of("tributary", many).bytes()/of("tributary", few).bytes(), "x-few-kinds")
		// Upstream's provider has one goroutine a cluster, which runs it; everything else is what informers need.
		b.ReportMetric(of("tributary", few).goroutines-(of("upstream", few).goroutines-1), "own-goroutines/cluster")
		b.ReportMetric(0, "ns/op")
	})
}

// starter starts a provider under a manager that prepare has added a controller to, upon a hub, and returns how to end it.
type starter func(b *testing.B, hub *rest.Config, prepare func(mcmanager.Manager) error) (end func())

// footprint is what a process holds, or how much of it a cluster does.
type footprint struct{ heap, stacks, goroutines float64 }

func (f footprint) bytes() float64 { return f.heap + f.stacks }

// since returns the difference, for each of n.
func (f footprint) since(o footprint, n int) footprint {
	return footprint{(f.heap - o.heap) / float64(n), (f.stacks - o.stacks) / float64(n), (f.goroutines - o.goroutines) / float64(n)}
}

// settle waits until goroutines have come to rest, and returns what is held then.
func settle() footprint {
	last, calm := 0, 0
	for range 500 {
		if n := runtime.NumGoroutine(); n == last {
			calm++
		} else {
			last, calm = n, 0
		}
		if calm == 50 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	var m runtime.MemStats
	for was := uint64(0); ; was = m.HeapAlloc { // what others have left behind may take a while to go
		time.Sleep(100 * time.Millisecond)
		runtime.GC()
		runtime.GC()
		if runtime.ReadMemStats(&m); max(m.HeapAlloc, was)-min(m.HeapAlloc, was) < 64<<10 {
			break
		}
	}
	return footprint{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// engageFromSecrets starts a provider upon an empty hub, has it engage one member, and then all others, by creating their Secrets.
// It returns what the first one has cost, and what each of the others has.
func engageFromSecrets(b *testing.B, fakes *fakes, kinds int, run string, start starter) (first, each footprint) {
	b.Helper()
	var mu sync.Mutex
	seen := map[multicluster.ClusterName]bool{}
	hub := fakes.config("hub-" + run)
	secrets, err := client.New(hub, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	end := start(b, hub, func(mgr mcmanager.Manager) error {
		return mcbuilder.ControllerManagedBy(mgr).Named("configmaps").For(&corev1.ConfigMap{}).
			WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: new(true)}).
			Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (ctrl.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				seen[req.ClusterName] = true
				return ctrl.Result{}, nil
			}))
	})
	defer end()
	engage := func(from, to int) footprint {
		for i := from; i < to; i++ {
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: fmt.Sprint("c", i),
					Labels: map[string]string{upstream.DefaultKubeconfigSecretLabel: "true"},
				},
				Data: map[string][]byte{upstream.DefaultKubeconfigSecretKey: fakes.kubeconfig(b, fmt.Sprintf("k%d-c%d", kinds, i))},
			}
			if err := secrets.Create(b.Context(), secret); err != nil {
				b.Fatal(err)
			}
		}
		await(b, "every member is reconciled", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) == to
		})
		return settle()
	}
	none := settle()
	one := engage(0, 1)
	all := engage(1, 1+fakes.members)
	return one.since(none, 1), all.since(one, fakes.members)
}

// startManager runs a manager, and returns how to end it.
func startManager(b *testing.B, mgr mcmanager.Manager) (end func()) {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("manager: %v", err)
		}
	}
}

var benchManager = mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard()}

func startTributary(b *testing.B, hub *rest.Config, prepare func(mcmanager.Manager) error) (end func()) {
	b.Helper()
	backend, err := secretbackend.New(secretbackend.Options{Hub: hub})
	if err != nil {
		b.Fatal(err)
	}
	p, err := aggregate.New(aggregate.Options{Metrics: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Add("x", backend, aggregate.BackendOptions{}); err != nil {
		b.Fatal(err)
	}
	mgr, err := mcmanager.New(hub, p, benchManager)
	if err != nil {
		b.Fatal(err)
	}
	if err := prepare(mgr); err != nil {
		b.Fatal(err)
	}
	return startManager(b, mgr)
}

func startUpstream(b *testing.B, hub *rest.Config, prepare func(mcmanager.Manager) error) (end func()) {
	b.Helper()
	p := upstream.New(upstream.Options{Namespace: "default"})
	options := benchManager
	options.Controller.SkipNameValidation = new(true)
	mgr, err := mcmanager.New(hub, p, options)
	if err != nil {
		b.Fatal(err)
	}
	if err := p.SetupWithManager(b.Context(), mgr); err != nil {
		b.Fatal(err)
	}
	if err := prepare(mgr); err != nil {
		b.Fatal(err)
	}
	return startManager(b, mgr)
}

// fakes are API servers in another process, so that nothing of theirs is counted.
type fakes struct {
	Addr    string
	CA      []byte
	members int
}

// fakesVariable is the environment variable that makes the test binary serve fakes: the number of members.
const fakesVariable = "TRIBUTARY_BENCH_FAKES"

// startFakes runs this program once more, as a server of fakes.
func startFakes(b *testing.B, members int) *fakes {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", fakesVariable, members))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { // without its standard input, it ends
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("server of fakes: %v", err)
		}
	})
	f := &fakes{members: members}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, f)
	}
	if err != nil {
		b.Fatalf("server of fakes: %v", err)
	}
	return f
}

// serveFakesIfAsked serves fakes and ends the process if it was started by startFakes.
func serveFakesIfAsked() {
	var members int
	if _, err := fmt.Sscan(os.Getenv(fakesVariable), &members); err != nil {
		return
	}
	server := fakeapi.NewServer()
	for _, kinds := range kindsOfMembers {
		for i := range members + 1 {
			c := server.Cluster(fmt.Sprintf("k%d-c%d", kinds, i))
			c.SetKinds(kinds)
			if err := c.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}); err != nil {
				panic(err)
			}
		}
		server.Cluster(fmt.Sprint("hub-tributary-kinds=", kinds))
		server.Cluster(fmt.Sprint("hub-upstream-kinds=", kinds))
	}
	if err := json.NewEncoder(os.Stdout).Encode(fakes{Addr: server.Addr(), CA: server.CAData()}); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.Close()
	os.Exit(0)
}

func (f *fakes) url(cluster string) string { return "https://" + f.Addr + "/clusters/" + cluster }

func (f *fakes) config(cluster string) *rest.Config {
	return &rest.Config{Host: f.url(cluster), TLSClientConfig: rest.TLSClientConfig{CAData: f.CA}, QPS: -1}
}

// kubeconfig returns a member's kubeconfig, with a client certificate of its own, as real ones have: client-go
// shares connections between configurations that have the same.
func (f *fakes) kubeconfig(b *testing.B, cluster string) []byte {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: cluster}, NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: f.url(cluster), CertificateAuthorityData: f.CA}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		ClientKeyData:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	data, err := clientcmd.Write(*config)
	if err != nil {
		b.Fatal(err)
	}
	return data
}
