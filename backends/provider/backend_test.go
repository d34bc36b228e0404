package provider_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// someCluster is a cluster that is known by its configuration, and does nothing.
type someCluster struct {
	cluster.Cluster
	config *rest.Config
}

func (c *someCluster) GetConfig() *rest.Config { return c.config }

// theirs is somebody else's provider: it engages what it is told to.
type theirs struct {
	mu    sync.Mutex
	run   context.Context // nil while it does not run
	aware multicluster.Aware
	has   map[string]*someCluster
	ends  map[string]context.CancelFunc
}

func newTheirs() *theirs {
	return &theirs{has: map[string]*someCluster{}, ends: map[string]context.CancelFunc{}}
}

func (p *theirs) Start(ctx context.Context, aware multicluster.Aware) error {
	p.mu.Lock()
	p.run, p.aware = ctx, aware
	for name := range p.has {
		if err := p.engage(name); err != nil {
			p.mu.Unlock()
			return err
		}
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run = nil
	return nil
}

func (p *theirs) engage(name string) error {
	ctx, cancel := context.WithCancel(p.run)
	before := p.ends[name]
	p.ends[name] = cancel
	err := p.aware.Engage(ctx, multicluster.ClusterName(name), p.has[name])
	if before != nil {
		before()
	}
	return err
}

func (p *theirs) put(t *testing.T, name string, access backendtest.Access) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.has[name] = &someCluster{config: &rest.Config{Host: access.Server, BearerToken: access.Token}}
	if p.run != nil {
		if err := p.engage(name); err != nil {
			t.Error(err)
		}
	}
}

func (p *theirs) remove(_ *testing.T, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.has, name)
	if end := p.ends[name]; end != nil {
		end()
		delete(p.ends, name)
	}
}

func newBackend(t *testing.T, opts provider.Options) *provider.Backend {
	t.Helper()
	b, err := provider.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{
		SyncedAtOnce: true,
		New: func(t *testing.T) backendtest.Inventory {
			p := newTheirs()
			return backendtest.Inventory{
				Backend: newBackend(t, provider.Options{Run: p.Start}),
				Member:  func(name string) string { return name },
				Put:     p.put, Break: p.remove, Delete: p.remove,
			}
		},
	})
}

// A provider that fails, ends by itself, or panics, takes its clusters with it: nobody runs them any longer.
func TestProviderFails(t *testing.T) {
	broke := errors.New("theirs broke")
	for name, end := range map[string]func() error{
		"fails":  func() error { return broke },
		"ends":   func() error { return nil },
		"panics": func() error { panic(broke) },
	} {
		t.Run(name, func(t *testing.T) {
			fail := make(chan struct{})
			b := newBackend(t, provider.Options{Run: func(ctx context.Context, aware multicluster.Aware) error {
				if err := aware.Engage(ctx, "a", &someCluster{config: &rest.Config{}}); err != nil {
					return err
				}
				<-fail
				return end()
			}})
			recorder := &backendtest.Recorder{}
			ended := make(chan error, 1)
			go func() {
				defer func() {
					if p := recover(); p != nil {
						ended <- p.(error)
					}
				}()
				ended <- b.Run(t.Context(), recorder)
			}()
			recorder.WaitEngaged(t, "a")
			close(fail)
			if err := <-ended; err == nil || name != "ends" && !errors.Is(err, broke) {
				t.Errorf("Run: %v", err)
			}
			recorder.WaitDisengaged(t, "a")
		})
	}
}

// A cluster that has ended is taken back before another one is engaged under its name, however soon that comes: it would serve
// until the other one is proved, without caches.
func TestEndedBeforeReplaced(t *testing.T) {
	first, second := &someCluster{config: &rest.Config{}}, &someCluster{config: &rest.Config{}}
	b := newBackend(t, provider.Options{Run: func(ctx context.Context, aware multicluster.Aware) error {
		life, end := context.WithCancel(ctx)
		defer end()
		if err := aware.Engage(life, "a", first); err != nil {
			return err
		}
		end()
		if err := aware.Engage(ctx, "a", second); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}})
	r := backendtest.Start(t, b)
	r.Wait(t, "the second cluster is engaged", func(f backendtest.Fleet) bool {
		c := f.Members["a"].Engaged
		return c != nil && c.Running == second
	})
	r.Stop(t)
	var methods []string
	for _, c := range r.Calls() {
		if c.Name == "a" {
			methods = append(methods, c.Method)
		}
	}
	if diff := cmp.Diff([]string{"Engage", "Hold", "Disengage", "Engage"}, methods); diff != "" {
		t.Errorf("what was said (-want +got):\n%s", diff)
	}
}

// What cannot be engaged is the provider's to hear of.
func TestRefusedClusters(t *testing.T) {
	for name, cl := range map[string]cluster.Cluster{
		"no cluster given": nil,
		"cannot be compared": struct {
			cluster.Cluster
			labels map[string]string
		}{},
	} {
		b := newBackend(t, provider.Options{Run: func(ctx context.Context, aware multicluster.Aware) error {
			return aware.Engage(ctx, "a", cl)
		}})
		if err := b.Run(t.Context(), &backendtest.Recorder{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOptions(t *testing.T) {
	_, err := provider.New(provider.Options{Provider: single{}})
	if err == nil || !strings.Contains(err.Error(), "the option Run is needed") {
		t.Errorf("a provider that cannot be run: %v", err)
	}
}

// single is a provider that nobody can run.
type single struct{ multicluster.Provider }
