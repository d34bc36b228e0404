package aggregate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/go-multierror"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
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
	// filters are what controllers choose clusters by; verdicts are what the filters said of each cluster (a ClusterName)
	// when it was handed to them.
	filters  filters
	verdicts sync.Map

	// mu guards what follows. It is never held across a backend's Run, I/O or a callback.
	mu       sync.Mutex
	backends map[string]*supervised
	added    int      // counts Add; gives backends their first rank
	session  *session // nil while the provider does not run
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
			ProofInterval: opts.ProofInterval, FailBack: opts.FailBack, HandoverTimeout: opts.HandoverTimeout,
		},
		ServeOnce:         opts.ServeOnce,
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
		OnHandOver:        p.noteVerdict,
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
	p.add(newSupervised("single", backend, BackendOptions{}, func(member string) string { return member }))
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
	s := newSupervised(name, backend, opts, func(member string) string {
		return FormatName(opts.Prefix, p.opts.Separator, member).String()
	})
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
	s.rank = p.added
	p.backends[s.name] = s
	if p.session != nil {
		p.supervise(s)
	}
	p.applyRanks()
	return true
}

// Update puts another Backend under the name of one: the old one is stopped, and then the new one is run. What the new
// one lists as well goes on as it is, or is swapped; what it does not list by the time it is Synced is disengaged, unless the
// guard has it held. The prefix cannot be changed. It does not wait for either; the error is ErrBackendNotFound if no backend
// has the name, or it is being removed.
func (p *Provider) Update(name string, backend backends.Backend, opts BackendOptions) error {
	if backend == nil {
		return fmt.Errorf("update backend %q: no backend given", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.backends[name]
	if s == nil || s.removed != nil {
		return fmt.Errorf("update backend %q: %w", name, ErrBackendNotFound)
	}
	if prefix := cmp.Or(opts.Prefix, name); prefix != s.prefix {
		return fmt.Errorf("update backend %q: its prefix is %q and cannot become %q: remove it, and add it anew", name, s.prefix, prefix)
	}
	s.backend, s.events, s.replace = backend, opts.Events, opts.Replace
	s.setGuard(opts.Guard)
	if s.cancel != nil {
		s.cancel()
	}
	if p.session != nil {
		p.supervise(s)
	}
	p.applyRanks()
	return nil
}

// Arrange sets the order of precedence of the backends under a prefix, the first one first; the order in which they were added
// is the one to begin with. Those that are not named come last, in the order they had. Where the first that lists a cluster is another one
// then, the cluster moves to it as soon as it is proved, by a swap. It does not wait for that: see ClusterStatus.Candidates. The error is
// ErrBackendNotFound if a name is not that of a backend under the prefix.
func (p *Provider) Arrange(prefix string, names ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var before []*supervised
	for _, s := range p.inOrder() {
		if s.prefix == prefix {
			before = append(before, s)
		}
	}
	after := make([]*supervised, 0, len(before))
	for _, name := range names {
		s := p.backends[name]
		if s == nil || s.prefix != prefix || s.removed != nil {
			return fmt.Errorf("arrange backends of prefix %q: backend %q: %w", prefix, name, ErrBackendNotFound)
		}
		if slices.Contains(after, s) {
			return fmt.Errorf("arrange backends of prefix %q: backend %q is named twice", prefix, name)
		}
		after = append(after, s)
	}
	ranks := make([]int, 0, len(before))
	for _, s := range before {
		ranks = append(ranks, s.rank)
		if !slices.Contains(after, s) {
			after = append(after, s)
		}
	}
	for i, s := range after {
		s.rank = ranks[i]
	}
	p.applyRanks()
	return nil
}

// inOrder returns the backends in their order of precedence. The caller holds p.mu.
func (p *Provider) inOrder() []*supervised {
	return slices.SortedFunc(maps.Values(p.backends), func(a, b *supervised) int { return cmp.Compare(a.rank, b.rank) })
}

// applyRanks gives every backend's members their place in the order. A backend before which another one of its prefix has yet
// to tell what it lists serves nothing new for a while: else it would serve for a moment what is the other's. The caller holds
// p.mu.
func (p *Provider) applyRanks() {
	unheard := map[string]bool{}
	for _, s := range p.inOrder() {
		source := engagement.Source{Name: s.name, Rank: s.rank, Replace: s.replace}
		if unheard[s.prefix] {
			source.NotBefore = s.headStart
		}
		s.rankAs(p.engine, source)
		unheard[s.prefix] = unheard[s.prefix] || s.removed == nil && !s.hasSynced()
	}
}

// Remove stops a backend, disengages the clusters that it alone lists, and returns when they are gone, and those that others
// list as well have moved to them, or with an error when ctx ends first. The removal then goes on; its name is taken until it is done, and Remove may be called again
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
		p.applyRanks()                 // nobody waits for it any longer
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
	// Bounded: by Options.DrainTimeout, and by Options.HandoverTimeout for what another backend lists as well.
	_ = p.engine.WaitLeft(context.Background(), s.name, names)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.backends, s.name)
	close(s.removed)
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
