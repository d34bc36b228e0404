package provider

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
)

// Options say which provider is a backend, and how it is run.
type Options struct {
	// Provider is run if it is a multicluster.ProviderRunnable. Either this is needed, or Run.
	Provider multicluster.Provider
	// Run runs a provider that is set up in another way, until ctx ends. It is given what clusters are to be engaged with. A provider
	// that wants a manager, as multicluster-runtime's kubeconfig provider does, is set up with [Manager].
	Run func(ctx context.Context, aware multicluster.Aware) error
}

// Backend is a provider as an inventory. A provider can often not be started twice; if Run returns an error, the aggregate
// calls it again all the same.
type Backend struct {
	run func(ctx context.Context, aware multicluster.Aware) error
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend of a provider. The error says what is wrong with the options.
func New(opts Options) (*Backend, error) {
	if opts.Run != nil {
		return &Backend{opts.Run}, nil
	}
	runnable, ok := opts.Provider.(multicluster.ProviderRunnable)
	if !ok {
		return nil, fmt.Errorf("provider backend: %T cannot be run by itself: the option Run is needed", opts.Provider)
	}
	return &Backend{runnable.Start}, nil
}

// Run implements backends.Backend. It returns nil when ctx has ended, and the provider's error otherwise.
func (b *Backend) Run(ctx context.Context, engager backends.Engager) error {
	ctx, cancel := context.WithCancel(ctx)
	e := &engagements{engager: engager, run: ctx, current: map[multicluster.ClusterName]context.Context{}}
	defer e.wg.Wait()
	defer func() {
		if ctx.Err() == nil { // it has failed, or panics
			e.stop()
		}
		cancel()
	}()
	// What is listed at the beginning is not known: a provider does not say when it has told everything. So what an earlier run
	// had engaged, and this one does not engage, is gone at once: its caches have ended with that run.
	engager.Synced()
	err := b.run(ctx, e)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("the provider ended by itself")
	}
	return err
}

// engagements turns a provider's engagements into an inventory's words.
type engagements struct {
	engager backends.Engager
	run     context.Context
	wg      sync.WaitGroup // whoever waits for a cluster's end

	// mu guards what follows, and orders the words: the engager returns at once.
	mu      sync.Mutex
	current map[multicluster.ClusterName]context.Context
	stopped bool
}

// Engage implements multicluster.Aware. It does not wait for the controllers.
func (e *engagements) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	if cl == nil {
		return fmt.Errorf("engage %q: no cluster given", name)
	}
	if !reflect.ValueOf(cl).Comparable() { // whether it is the one that is engaged already could not be said
		return fmt.Errorf("engage %q: a cluster of type %T cannot be compared; give a pointer", name, cl)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped || e.run.Err() != nil {
		return fmt.Errorf("engage %q: the provider has been stopped", name)
	}
	if before := e.current[name]; before != nil && before.Err() != nil {
		// Its end has not been told yet, and must be: else it would go on without caches until this one is proved.
		e.takeBack(name, backends.ReasonReplaced)
	}
	e.current[name] = ctx
	e.engager.Engage(backends.Cluster{Name: name.String(), Running: cl, Info: backends.Info{DisplayName: name.String()},
		Source: backends.ObjectReference{Name: name.String()}})
	e.wg.Go(func() {
		select {
		case <-ctx.Done():
			e.ended(ctx, name)
		case <-e.run.Done():
		}
	})
	return nil
}

// ended takes a cluster back whose context has ended, unless the provider has engaged another one under the name.
func (e *engagements) ended(ctx context.Context, name multicluster.ClusterName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current[name] == ctx && e.run.Err() == nil { // else it has ended with the run, of which there is nothing to say
		e.takeBack(name, backends.ReasonDeleted)
	}
}

// takeBack takes a cluster back. Nobody runs it any longer, so it is not to be kept for a while, not even where many
// vanish at once. The caller holds mu.
func (e *engagements) takeBack(name multicluster.ClusterName, reason backends.Reason) {
	delete(e.current, name)
	e.engager.Hold(name.String(), backends.Hold{Reason: reason})
	e.engager.Disengage(name.String(), reason)
}

// stop takes everything back: what a provider that has failed leaves running, nobody looks after.
func (e *engagements) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	for name := range e.current {
		e.takeBack(name, backends.ReasonBackendFailed)
	}
}

// Manager returns mgr as a provider is to see it that engages clusters through a manager: they are engaged with aware instead.
//
//	theirs := mcrkubeconfig.New(mcrkubeconfig.Options{Namespace: "fleet"})
//	backend, err := provider.New(provider.Options{Run: func(ctx context.Context, aware multicluster.Aware) error {
//		if err := theirs.SetupWithManager(ctx, provider.Manager(mgr, aware)); err != nil {
//			return err
//		}
//		<-ctx.Done()
//		return nil
//	}})
func Manager(mgr mcmanager.Manager, aware multicluster.Aware) mcmanager.Manager {
	return &manager{mgr, aware}
}

type manager struct {
	mcmanager.Manager
	aware multicluster.Aware
}

// Engage implements multicluster.Aware.
func (m *manager) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	return m.aware.Engage(ctx, name, cl)
}
