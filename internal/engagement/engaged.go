package engagement

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/restmapper"
	"github.com/tributary-fleet/tributary/internal/transport"
)

// built is a cluster.Cluster and what it stands on.
type built struct {
	name      string
	cluster   cluster.Cluster
	cache     *memberCache
	probes    http.RoundTripper    // what the cluster is asked through whether it is alive
	mapper    *restmapper.Mapper   // nil for a cluster that somebody else runs,
	transport *transport.Transport // as is this
	health    *watchHealth
	// onUnauthorized is told of a generation whose credential was refused. Set before the cluster is served.
	onUnauthorized func(*transport.Generation)

	indexMu sync.Mutex
	indexed map[indexKey]*onceIndexed
}

// build makes a cluster upon a generation. It does no I/O.
func (e *Engine) build(r *run, name string, gen *transport.Generation, surface *restmapper.Surface) (*built, error) {
	b := &built{name: name, indexed: map[indexKey]*onceIndexed{}, onUnauthorized: func(*transport.Generation) {}}
	options := r.transport
	options.OnUnauthorized = func(g *transport.Generation) { b.onUnauthorized(g) }
	b.transport = transport.New(gen, options)
	b.probes = b.transport
	b.health = &watchHealth{next: b.transport, missing: func() { b.mapper.Refresh() }}
	httpClient := &http.Client{Transport: b.health}
	b.mapper = e.mappers.NewMapper(surface, func(ctx context.Context, previous *restmapper.Surface) (*restmapper.Surface, error) {
		return e.mappers.Discover(ctx, httpClient, memberHost, previous)
	}, restmapper.MapperOptions{})

	clusterOptions := []cluster.Option{func(o *cluster.Options) {
		o.Scheme = r.scheme
		o.Logger = r.log.WithValues("cluster", name)
		o.Cache.DefaultTransform = crcache.TransformStripManagedFields()
	}}
	clusterOptions = append(clusterOptions, e.opts.ClusterOptions...)
	clusterOptions = append(clusterOptions, func(o *cluster.Options) {
		if o.Client.Cache != nil {
			// cluster.New writes this cluster's cache into it: a shared one would make every client read the first's.
			own := *o.Client.Cache
			o.Client.Cache = &own
		}
		o.Cache.HTTPClient, o.Cache.Mapper = nil, nil
		o.Client.HTTPClient, o.Client.Mapper = nil, nil
		o.HTTPClient = httpClient
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return b.mapper, nil }
		newCache := o.NewCache
		if newCache == nil {
			newCache = crcache.New
		}
		o.NewCache = func(config *rest.Config, opts crcache.Options) (crcache.Cache, error) {
			mapper := &cacheMapper{RESTMapper: b.mapper}
			opts.Mapper = mapper
			release := mapper.assume()
			inner, err := newCache(config, opts)
			release()
			if err != nil {
				return nil, err
			}
			b.cache = &memberCache{
				Cache: inner, mapper: mapper, readTimeout: e.opts.ReadTimeout, scheme: opts.Scheme, asked: make(chan struct{}, 1),
				forget: b.health.forget,
			}
			return b.cache, nil
		}
	})
	var err error
	if b.cluster, err = cluster.New(b.transport.RESTConfig(memberHost), clusterOptions...); err != nil {
		b.mapper.Close()
		return nil, fmt.Errorf("build cluster: %w", err)
	}
	return b, nil
}

// close ends everything below the cluster. The cluster itself must have ended, or never have been started.
func (b *built) close(ctx context.Context) {
	if b.transport == nil {
		return
	}
	b.mapper.Close()
	_ = b.transport.Close(ctx) // bounded by ctx: what is late then, the garbage collector gets
}

// watched returns the resources that the cluster's informers watch.
func (b *built) watched() []schema.GroupVersionResource {
	return b.cache.watched(b.cluster.GetRESTMapper())
}

// engaged is one run of a cluster, from its engagement to its end.
type engaged struct {
	*built
	id     uint64
	ctx    context.Context // the cluster's life
	cancel context.CancelFunc
	// handedOver is closed when Engage has returned the first time. takeBack ends what the controllers were given then, or
	// last; it belongs to whoever's turn it is to call Engage for the name.
	handedOver chan struct{}
	takeBack   context.CancelFunc
	// wg waits for the cluster's own goroutines.
	wg sync.WaitGroup
	// leaveSync gives up the place among the clusters in their first sync. Set by engage.
	leaveSync func()

	force atomic.Pointer[proved] // what it runs upon now
}

func newEngaged(ctx context.Context, id uint64, p *proved) *engaged {
	en := &engaged{built: p.built, id: id, handedOver: make(chan struct{}), takeBack: func() {}}
	en.ctx, en.cancel = en.life(ctx)
	en.cache.life = en.ctx
	en.force.Store(p)
	return en
}

// life returns a context of the cluster, whose cause says which cluster's it was.
func (en *engaged) life(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func() { cancel(&TakenBackError{multicluster.ClusterName(en.name)}) }
}

// TakenBackError is the cause of the end of a context that controllers were engaged with.
type TakenBackError struct{ Name multicluster.ClusterName }

func (e *TakenBackError) Error() string { return fmt.Sprintf("cluster %q taken back", e.Name) }

// swap puts a proved connection under the running cluster.
func (en *engaged) swap(p *proved) {
	en.force.Store(p)
	en.transport.Swap(p.generation)
}

// engage runs a cluster: starts it, hands it to the controllers as soon as there are any, and waits for its first sync. previous
// is closed when the call of Engage before this one has returned; replaces says that it takes over from another engagement.
func (e *Engine) engage(r *run, m *member, en *engaged, previous <-chan struct{}, replaces bool) {
	defer func() {
		close(en.handedOver)
		e.report(m, Tick{}) // the name may have been waiting for this to be forgotten
	}()
	e.published()
	if previous != nil {
		<-previous
	}
	en.leaveSync = func() {}
	if en.ctx.Err() != nil {
		return
	}
	en.wg.Go(func() {
		err := r.contain(func() error { return en.cluster.Start(en.ctx) })
		if en.ctx.Err() == nil {
			message := "the cluster's cache ended by itself"
			if err != nil {
				message += ": " + en.withhold(err.Error())
			}
			e.report(m, Stopped{en.id, Failure{backends.ReasonEngageFailed, message}, jitter()})
		}
	})
	en.health.listen(func(w WatchesChanged) {
		w.Engagement = en.id
		e.report(m, w)
	})
	en.wg.Go(func() {
		_ = r.contain(func() error { // it runs the user's index functions; a panic is logged
			en.tendKinds(en.ctx, func(pending []schema.GroupVersionKind, err error) {
				if err != nil {
					r.log.Error(err, "informer not started", "cluster", en.name)
				}
				en.health.setPending(pending)
			})
			return nil
		})
	})
	select {
	case <-r.led:
	case <-en.ctx.Done():
		return
	}
	if !replaces { // else the name is being served, and is not to go without a cluster until its turn comes
		if e.syncs.enter(en.ctx, en.force.Load().link.Source) != nil {
			return
		}
		en.leaveSync = sync.OnceFunc(e.syncs.leave)
	}
	began := time.Now()
	err := e.handOver(r, en)
	if en.ctx.Err() != nil {
		en.leaveSync()
		return
	}
	if err != nil {
		en.leaveSync()
		e.report(m, EngageReturned{en.id, &Failure{backends.ReasonEngageFailed, en.withhold(err.Error())}, jitter()})
		return
	}
	e.report(m, EngageReturned{Engagement: en.id})
	en.wg.Go(func() { e.awaitSync(m, en, began) })
}

// awaitSync waits for the cluster's first sync, and gives its place among the syncing ones up when it is done or
// takes too long.
func (e *Engine) awaitSync(m *member, en *engaged, began time.Time) {
	defer en.leaveSync()
	tooLong := time.AfterFunc(e.opts.FirstSyncTimeout, en.leaveSync)
	defer tooLong.Stop()
	if en.cache.firstSync(en.ctx) {
		e.opts.Metrics.synced(en.force.Load().link.Source, time.Since(began))
		e.report(m, Synced{en.id})
	}
}

// handOver adds the indexes and engages the controllers. What they were given before is taken back first.
func (e *Engine) handOver(r *run, en *engaged) error {
	en.takeBack()
	ctx, takeBack := en.life(en.ctx)
	en.takeBack = takeBack
	ctx = mark(ctx)
	for _, x := range e.indexes.list() {
		if err := en.index(ctx, x); err != nil {
			r.log.Error(err, "index not added", "cluster", en.name)
		}
	}
	return r.contain(func() error {
		e.opts.OnHandOver(multicluster.ClusterName(en.name))
		return r.aware.Engage(ctx, multicluster.ClusterName(en.name), en.cluster)
	})
}

// HandOverAgain takes a cluster back from the controllers and hands it to them anew, caches and all: they choose anew which of
// its objects they watch, and are called for all of those. It does nothing for a cluster that is not engaged, and does not wait.
func (e *Engine) HandOverAgain(name multicluster.ClusterName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, m := e.run, e.members[name.String()]
	if r == nil || m == nil || m.machine.current == nil {
		return
	}
	en := m.engaged[m.machine.current.id]
	previous, done := m.handedOver, make(chan struct{})
	m.handedOver = done
	en.wg.Go(func() {
		defer func() {
			close(done)
			e.report(m, Tick{})
		}()
		<-previous
		if en.ctx.Err() != nil {
			return
		}
		if err := e.handOver(r, en); err != nil && en.ctx.Err() == nil {
			e.report(m, EngageReturned{en.id, &Failure{backends.ReasonEngageFailed, en.withhold(err.Error())}, jitter()})
		}
	})
}

var errPanic = errors.New("panicked")

// contain turns a panic of somebody else's code into an error, and logs where it came from.
func (r *run) contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
			r.log.Error(err, "panic contained", "stack", string(debug.Stack()))
		}
	}()
	return f()
}

// drain waits for a cancelled engagement's end, and closes its connections.
func (e *Engine) drain(r *run, m *member, en *engaged) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), e.opts.DrainTimeout, errDrainTimeout)
	defer cancel()
	ended := make(chan struct{})
	r.wg.Go(func() {
		<-en.handedOver
		en.wg.Wait()
		close(ended)
	})
	select {
	case <-ended:
	case <-ctx.Done():
		r.log.Info("cluster does not come to its end: its connections are cut", "cluster", en.name, "after", e.opts.DrainTimeout)
	}
	en.close(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(m.engaged, en.id)
	if e.has(m) {
		e.step(m, Drained{en.id})
	}
}

// maxMessage bounds what somebody else's error adds to a status.
const maxMessage = 512

// withhold returns somebody else's text without the credentials of the connection in force, and not too long.
func (en *engaged) withhold(text string) string {
	return withhold(text, en.force.Load().link.auth())
}

func withhold(text string, a connection.Auth) string {
	secrets := []connection.Secret{a.Token, a.Password, a.ClientKeyData}
	if a.Exec != nil {
		secrets = append(secrets, a.Exec.Args...)
		for _, v := range a.Exec.Env {
			secrets = append(secrets, v.Value)
		}
	}
	for _, s := range secrets {
		if v := s.Reveal(); len(v) >= minSecret {
			text = strings.ReplaceAll(text, v, s.String())
		}
	}
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + " …"
	}
	return text
}

// minSecret is the shortest value that is taken out of texts: shorter ones, such as a plugin's argument "-v", would
// only make them unreadable.
const minSecret = 6

var errDrainTimeout = errors.New("drain: timed out")

// probe asks the cluster through its own transport whether it is alive and which one it is, and reports the answer.
func (e *Engine) probe(m *member, en *engaged, generation uint64) {
	ctx, cancel := context.WithTimeout(en.ctx, e.opts.ProbeTimeout)
	defer cancel()
	p := prober{client: &http.Client{Transport: en.probes}}
	began := time.Now()
	result := Probed{Engagement: en.id, Generation: generation, Jitter: jitter()}
	err := p.alive(ctx)
	if err == nil && en.transport != nil {
		result.UID, err = p.uid(ctx)
	}
	if err != nil {
		failure := classify(err)
		result.Failure = &failure
	}
	if en.ctx.Err() != nil {
		return
	}
	e.opts.Metrics.probed(m.name, en.force.Load().link.Source, time.Since(began), result.Failure)
	e.report(m, result)
}
