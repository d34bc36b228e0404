package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/engagement"
)

// Errors of Add and Remove.
var (
	// ErrBackendExists: the name is taken by a backend that was not removed, or is still being removed.
	ErrBackendExists = errors.New("backend exists")
	// ErrBackendNotFound: no backend has the name.
	ErrBackendNotFound = errors.New("backend not found")
)

// Provider serves the clusters of several backends as one multicluster-runtime provider. All methods may be
// called concurrently, before, while and after it runs.
type Provider struct {
	opts   Options
	engine *engagement.Engine
	feed   feed

	// mu guards what follows. It is never held across a backend's Run, I/O or a callback.
	mu       sync.Mutex
	backends map[string]*supervised
	added    int             // counts Add; gives backends their rank
	ctx      context.Context // nil while the provider does not run
	log      logr.Logger     // of the present run
	wg       *sync.WaitGroup // of the present run: the backends' supervisors, and what records Events
}

var (
	_ multicluster.Provider         = (*Provider)(nil)
	_ multicluster.ProviderRunnable = (*Provider)(nil)
)

// New returns a Provider without backends. The error says what is wrong with the options.
func New(opts Options) (*Provider, error) {
	opts = opts.withDefaults()
	if err := checkSeparator(opts.Separator); err != nil {
		return nil, fmt.Errorf("aggregate options: %w", err)
	}
	measures, err := engagement.NewMetrics(opts.Metrics)
	if err != nil {
		return nil, fmt.Errorf("aggregate options: register metrics: %w", err)
	}
	p := &Provider{opts: opts, backends: map[string]*supervised{}}
	p.engine = engagement.New(engagement.Options{
		Timing: engagement.Timing{
			BackoffBase: opts.RetryBase, BackoffMax: opts.RetryMax,
			ProbeInterval: opts.ProbeInterval, ProbeFailures: opts.ProbeFailures,
		},
		ConnectTimeout:    opts.ConnectTimeout,
		MaxConnects:       opts.MaxConnects,
		MaxFirstSyncs:     opts.MaxFirstSyncs,
		Metrics:           measures,
		PluginTimeout:     opts.PluginTimeout,
		MaxPlugins:        opts.MaxPlugins,
		PluginEnvironment: opts.PluginEnvironment,
		ProbeTimeout:      opts.ProbeTimeout,
		ReadTimeout:       opts.ReadTimeout,
		DrainTimeout:      opts.DrainTimeout,
		Scheme:            opts.Scheme,
		ClusterOptions:    opts.ClusterOptions,
		OnChange: func(name string, s engagement.Status, known bool) {
			p.feed.publish(clusterStatus(name, s), !known)
		},
	})
	return p, nil
}

// Single returns a Provider that serves one backend under its members' own names, without a prefix.
func Single(backend backends.Backend, opts Options) (*Provider, error) {
	p, err := New(opts)
	if err != nil {
		return nil, err
	}
	p.add(&supervised{name: "single", backend: backend, publicName: func(member string) string { return member }})
	return p, nil
}

// Add adds a backend under a name, a DNS label (RFC 1123), and starts it if the provider runs. It returns
// ErrBackendExists if the name is taken.
func (p *Provider) Add(name string, backend backends.Backend, opts BackendOptions) error {
	if opts.Prefix == "" {
		opts.Prefix = name
	}
	var problems *multierror.Error
	if backend == nil {
		problems = multierror.Append(problems, errors.New("no backend given"))
	}
	problems = multierror.Append(problems, checkLabel("name", name), checkLabel("prefix", opts.Prefix))
	if err := problems.ErrorOrNil(); err != nil {
		return fmt.Errorf("add backend %q: %w", name, err)
	}
	s := &supervised{name: name, prefix: opts.Prefix, backend: backend, events: opts.Events, publicName: func(member string) string {
		return FormatName(opts.Prefix, p.opts.Separator, member).String()
	}}
	if !p.add(s) {
		return fmt.Errorf("add backend %q: %w", name, ErrBackendExists)
	}
	return nil
}

func (p *Provider) add(s *supervised) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backends[s.name] != nil {
		return false
	}
	p.added++
	s.source = engagement.Source{Name: s.name, Rank: p.added}
	s.health = backends.Health{Reason: backends.ReasonStarting}
	p.backends[s.name] = s
	if p.ctx != nil {
		p.supervise(s)
	}
	return true
}

// Remove stops a backend, disengages the clusters that it alone lists, and returns when they are gone, or with
// an error when ctx ends first. The removal then goes on; its name is taken until it is done, and Remove may be called again
// to wait for that.
func (p *Provider) Remove(ctx context.Context, name string) error {
	p.mu.Lock()
	s := p.backends[name]
	if s == nil {
		p.mu.Unlock()
		return fmt.Errorf("remove backend %q: %w", name, ErrBackendNotFound)
	}
	if s.removed == nil {
		s.removed = make(chan struct{})
		if s.cancel != nil {
			s.cancel()
		}
		stopped := s.stopped
		go p.finishRemoval(s, stopped) // waited for through s.removed
	}
	removed := s.removed
	p.mu.Unlock()

	select {
	case <-removed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("remove backend %q: it has not come to its end: %w", name, context.Cause(ctx))
	}
}

// finishRemoval disengages what the backend lists, when its supervisor has stopped or at once if it never had one.
func (p *Provider) finishRemoval(s *supervised, stopped <-chan struct{}) {
	names := s.withdrawAll(p.engine, backends.ReasonBackendRemoved) // at once, even if it does not stop
	if stopped != nil {
		<-stopped
		names = s.withdrawAll(p.engine, backends.ReasonBackendRemoved) // it may just have begun
	}
	_ = p.engine.WaitDrained(context.Background(), names) // draining is bounded
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.backends, s.name)
	close(s.removed)
}

// Start runs the backends and engages their clusters with aware, until ctx ends. multicluster-runtime's manager
// calls it. It returns nil after everything has come to its end, or an error naming what had not within StopTimeout.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	scheme, logger := fromManager(aware)
	if p.opts.Logger.GetSink() != nil {
		logger = p.opts.Logger
	}
	logger = logger.WithName("tributary")
	// Engagements outlive ctx until they are disengaged in order.
	if err := p.engine.Start(context.WithoutCancel(ctx), aware, scheme, logger); err != nil {
		return fmt.Errorf("start aggregate: %w", err)
	}
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	wg := &sync.WaitGroup{} // a new one: backends of an earlier run may not have stopped yet
	p.ctx, p.log, p.wg = runCtx, logger, wg
	for _, s := range p.backends {
		p.supervise(s)
	}
	p.mu.Unlock()
	wg.Go(func() { p.recordEvents(runCtx) })

	<-ctx.Done()

	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	stopCtx, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), p.opts.StopTimeout)
	defer cancelStop()
	var problems *multierror.Error
	// The engine first: a backend that does not stop must not use up the time that clusters need. Words that come
	// meanwhile count for nothing.
	problems = multierror.Append(problems, p.engine.Stop(stopCtx))
	if !waitFor(stopCtx, wg) {
		problems = multierror.Append(problems, errors.New("backends still running"))
	}
	if err := problems.ErrorOrNil(); err != nil {
		return fmt.Errorf("stop aggregate: %w", err)
	}
	return nil
}

// fromManager returns what clusters inherit from the manager that engages them, if it is one.
func fromManager(aware multicluster.Aware) (*runtime.Scheme, logr.Logger) {
	if mgr, ok := aware.(interface{ GetLocalManager() manager.Manager }); ok {
		local := mgr.GetLocalManager()
		return local.GetScheme(), local.GetLogger()
	}
	return nil, logr.Discard()
}

// Get returns the cluster engaged under a public name. Its errors are multicluster.ErrClusterNotFound for a name
// that no backend lists, and one that matches backends.ErrNotEngaged for one that is not engaged now. It takes
// no lock and never waits; ctx is not used.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	return p.engine.Get(name)
}

// IndexField adds an index to every cluster, those that are engaged now and those that will be. It does not wait
// for any cluster, and repeating an index for the same type and field does nothing.
func (p *Provider) IndexField(ctx context.Context, obj client.Object, field string, extractValue client.IndexerFunc) error {
	return p.engine.IndexField(ctx, obj, field, extractValue)
}

// InfoFor returns what the inventory says about a cluster: labels, properties, version. The error is
// multicluster.ErrClusterNotFound if no backend lists it. It takes no lock.
func (p *Provider) InfoFor(name multicluster.ClusterName) (backends.Info, error) {
	s, ok := p.engine.StatusOf(name)
	if !ok {
		return backends.Info{}, multicluster.ErrClusterNotFound
	}
	return s.Cluster.Info, nil
}

// RESTConfigFor returns an ordinary rest.Config for a cluster that is engaged now: for consumers that cannot use
// the cluster's own clients, such as exec and port-forward. It holds the credential in force, which a later
// rotation does not change: ask again for each use, and store it nowhere. Its errors are those of Get, or say that
// a credential plugin failed.
func (p *Provider) RESTConfigFor(ctx context.Context, name multicluster.ClusterName) (*rest.Config, error) {
	return p.engine.RESTConfigFor(ctx, name)
}
