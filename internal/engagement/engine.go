package engagement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/execplugin"
	"github.com/tributary-fleet/tributary/internal/restmapper"
	"github.com/tributary-fleet/tributary/internal/transport"
)

// Engine drives a Machine per public name. All methods may be called concurrently.
type Engine struct {
	opts     Options
	mappers  *restmapper.Pool
	indexes  indexes
	surface  atomic.Pointer[restmapper.Surface] // of the cluster that was last connected to, if it was complete
	connects *places                            // of attempts
	syncs    *turns                             // of clusters in their first sync

	// served answers Get: public name (multicluster.ClusterName) → *entry. It is written under mu only,
	// and read without.
	served sync.Map

	// mu guards what follows, and the machines. It is never held across I/O, an Engage or a callback.
	mu      sync.Mutex
	members map[string]*member
	claims  claims
	run     *run // nil while the engine does not run
}

// run is what one Start brings along.
type run struct {
	ctx    context.Context // every attempt and engagement hangs on it
	cancel context.CancelFunc
	// led is closed when there is something to hand clusters to, which is aware then.
	led    chan struct{}
	aware  multicluster.Aware
	scheme *runtime.Scheme
	log    logr.Logger
	// plugins runs the clusters' credential plugins; transport are the options of their transports.
	plugins   *execplugin.Runner
	transport transport.Options
	// lines are what is to be logged: a logger is somebody else's code, and may be slow.
	lines    lines
	stopping bool           // nothing new is taken; guarded by Engine.mu
	wg       sync.WaitGroup // every goroutine of the engine
}

// member is all that the engine has of one public name. It is guarded by Engine.mu.
type member struct {
	name    string
	machine *Machine
	// attempts are those that run, by generation. At most one of them counts.
	attempts map[uint64]runningAttempt
	// proved is the connection that the machine is just being told about.
	proved *proved
	// engaged are the clusters that run or drain, by engagement.
	engaged map[uint64]*engaged
	// handedOver is closed when the last call of Engage for this name has returned. Calls are made one after
	// the other: a controller that learns of the old cluster last would throw the new one out.
	handedOver chan struct{}

	// waiting are those who wait until nothing is left of a source.
	waiting []waiter
	// claimed is the cluster that the name is known to lead to; see claims.
	claimed claimed

	timer *time.Timer
	wake  time.Time
}

// runningAttempt is an attempt to connect that has not returned.
type runningAttempt struct {
	source string
	cancel context.CancelFunc
}

// waiter waits until nothing is left of a source.
type waiter struct {
	source string
	done   chan struct{}
}

// entry is what Get answers for a name.
type entry struct {
	cluster cluster.Cluster // nil while not engaged
	status  Status
}

// New returns an Engine that does nothing before Start.
func New(opts Options) *Engine {
	opts = opts.withDefaults()
	return &Engine{
		opts:     opts,
		mappers:  restmapper.NewPool(),
		connects: newPlaces(opts.MaxConnects),
		syncs:    newTurns(opts.MaxFirstSyncs),
		members:  map[string]*member{},
		claims:   claims{},
	}
}

// Start makes the engine work: clusters that are declared from now on are connected to, and served. They are handed to nobody
// before Lead. Contexts of engagements descend from ctx. scheme is used unless the options name one, and may be nil. A
// started engine must be stopped.
func (e *Engine) Start(ctx context.Context, scheme *runtime.Scheme, log logr.Logger) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run != nil {
		return errors.New("start engine: it runs already")
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &run{
		ctx: ctx, cancel: cancel, led: make(chan struct{}), log: log,
		scheme:    cmp.Or(e.opts.Scheme, scheme, clientgoscheme.Scheme),
		plugins:   execplugin.NewRunner(execplugin.Options{Timeout: e.opts.PluginTimeout, MaxConcurrent: e.opts.MaxPlugins, Environment: e.opts.PluginEnvironment}),
		transport: e.opts.Transport,
	}
	r.transport.Exec = r.plugins
	r.transport.UserAgent = cmp.Or(r.transport.UserAgent, rest.DefaultKubernetesUserAgent())
	r.lines.wake = make(chan struct{}, 1)
	r.wg.Go(func() { r.lines.write(r.ctx, r.log) })
	e.run = r
	return nil
}

// Lead has every cluster handed to aware, those that are connected already and those that will be. The engine must
// run, and be led once only.
func (e *Engine) Lead(aware multicluster.Aware) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.run == nil || e.run.stopping:
		return errors.New("lead engine: it does not run")
	case e.run.leads():
		return errors.New("lead engine: it is led already")
	}
	e.run.aware = aware
	close(e.run.led)
	for _, m := range e.members {
		e.step(m, Led{})
	}
	return nil
}

// leads reports whether there is something to hand clusters to.
func (r *run) leads() bool {
	select {
	case <-r.led:
		return true
	default:
		return false
	}
}

// Stop disengages everything, and waits for every goroutine until ctx ends. Afterwards the engine knows no
// names, and can be started again. If ctx ends first, the error names the clusters that had not come to their end.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	r := e.run
	if r == nil {
		e.mu.Unlock()
		return nil
	}
	r.stopping = true
	for _, m := range e.members {
		for _, c := range slices.Clone(m.machine.candidates) {
			e.step(m, Withdrawn{Source: c.source.Name, Reason: backends.ReasonStopped})
		}
	}
	e.mu.Unlock()
	r.cancel()

	done := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("stop engine: clusters still draining: %v: %w", e.names(), context.Cause(ctx))
	}
	if pluginErr := r.plugins.Close(ctx); pluginErr != nil && err == nil {
		err = fmt.Errorf("stop engine: credential plugins still running: %w", pluginErr)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.members { // what has not come to its end in time
		e.move(m, claimed{})
		e.forget(m)
	}
	e.run = nil
	return err
}

func (e *Engine) names() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.members {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Declare says that the source lists the cluster under the public name.
func (e *Engine) Declare(name string, source Source, cluster backends.Cluster) {
	e.tell(name, Declared{source, cluster})
}

// Hold says that the source lists the name, as its member, but holds it back.
func (e *Engine) Hold(name string, source Source, member string, hold backends.Hold) {
	e.tell(name, Held{source, member, hold})
}

// Withdraw says that the source no longer lists the name.
func (e *Engine) Withdraw(name, source string, reason backends.Reason) {
	e.tell(name, Withdrawn{source, reason})
}

// Rank says that the source's place in the order of precedence, or what it may do, is another now.
func (e *Engine) Rank(name string, source Source) {
	e.tell(name, Ranked{source})
}

// tell feeds an event from outside. It does nothing while the engine does not run.
func (e *Engine) tell(name string, event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run == nil || e.run.stopping {
		return
	}
	m := e.members[name]
	if m == nil {
		switch event.(type) {
		case Withdrawn, Ranked:
			return // of a name that the source does not list
		}
		m = &member{
			name: name, machine: NewMachine(e.opts.Timing),
			attempts: map[uint64]runningAttempt{}, engaged: map[uint64]*engaged{},
		}
		m.machine.standby = !e.run.leads()
		e.members[name] = m
	}
	e.step(m, event)
}

// report feeds the result of an action.
func (e *Engine) report(m *member, event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.has(m) {
		e.step(m, event)
	}
}

// has reports whether the member counts still: results may come late, when it is forgotten and another has its
// name, or after the engine has stopped. The caller holds mu.
func (e *Engine) has(m *member) bool { return e.run != nil && e.members[m.name] == m }

// step feeds an event to the member's machine and carries out what it asks for. The caller holds mu, and has
// made sure that the member counts.
func (e *Engine) step(m *member, event Event) {
	before := m.machine.Status()
	for _, action := range m.machine.Step(time.Now(), event) {
		e.do(m, action)
	}
	e.publish(m, before)
	e.schedule(m)
	e.claim(m)
}

// published waits until the step that is being taken is visible to Get.
func (e *Engine) published() {
	e.mu.Lock()
	defer e.mu.Unlock()
}

// do carries out an action. It only starts or cancels work. The caller holds mu.
func (e *Engine) do(m *member, action Action) {
	r := e.run
	switch a := action.(type) {
	case Connect:
		ctx, cancel := context.WithCancel(r.ctx)
		m.attempts[a.Generation] = runningAttempt{a.Link.Source, cancel}
		running := m.engaged[a.Running]
		r.wg.Go(func() { e.connect(ctx, r, m, a, running) })
	case CancelConnect:
		if attempt, runs := m.attempts[a.Generation]; runs { // or its result is what this is about
			attempt.cancel()
		}
	case Discard:
		p := m.proved
		m.proved = nil
		r.wg.Go(func() { p.discard(e.opts.DrainTimeout) })
	case Engage:
		en := newEngaged(r.ctx, a.Engagement, m.proved)
		en.onUnauthorized = func(g *transport.Generation) {
			if in := en.force.Load(); in.generation == g {
				e.report(m, Unauthorized{en.id, in.number})
			}
		}
		e.opts.Metrics.inForce(m.name, m.proved.link, false)
		m.proved = nil
		m.engaged[a.Engagement] = en
		previous, replaces := m.handedOver, len(m.engaged) > 1
		m.handedOver = en.handedOver
		r.wg.Go(func() { e.engage(r, m, en, previous, replaces) })
	case Swap:
		p := m.proved
		m.proved = nil
		e.opts.Metrics.inForce(m.name, p.link, true)
		m.engaged[a.Engagement].swap(p)
	case Disengage:
		en := m.engaged[a.Engagement]
		e.opts.Metrics.disengaged(en.force.Load().link.Source, a.Reason)
		en.cancel()
		r.wg.Go(func() { e.drain(r, m, en) })
	case Probe:
		en := m.engaged[a.Engagement]
		en.wg.Go(func() { e.probe(m, en, a.Generation) })
	default:
		panic(fmt.Sprintf("engagement: unknown action %T", action))
	}
}

// publish makes Get and the listeners see what the step has changed. The caller holds mu.
func (e *Engine) publish(m *member, before Status) {
	name, after := multicluster.ClusterName(m.name), m.machine.Status()
	if len(m.machine.candidates) == 0 {
		e.served.Delete(name)
	} else {
		next := &entry{status: after}
		if c := m.machine.current; c != nil {
			next.cluster = m.engaged[c.id].cluster
		}
		if old, ok := e.served.Load(name); !ok || old.(*entry).cluster != next.cluster || !old.(*entry).status.same(after) {
			e.served.Store(name, next)
		}
	}
	e.opts.Metrics.moved(before, after)
	if !before.same(after) {
		if before.State != after.State || before.Reason != after.Reason {
			e.run.lines.add(func(log logr.Logger) {
				log.Info("cluster changed state", "cluster", m.name, "backend", after.Source,
					"state", after.State, "reason", after.Reason, "message", after.Message)
			})
		}
		e.opts.OnChange(m.name, after, true)
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(w waiter) bool {
		if m.uses(w.source) {
			return false
		}
		close(w.done)
		return true
	})
	if m.machine.Idle() && len(m.attempts) == 0 && m.quiet() {
		e.forget(m)
	}
}

// forget drops all that the engine has of a name. The caller holds mu.
func (e *Engine) forget(m *member) {
	last := m.machine.Status()
	m.stopTimer()
	for _, w := range m.waiting {
		close(w.done)
	}
	m.waiting = nil
	delete(e.members, m.name)
	e.served.Delete(multicluster.ClusterName(m.name))
	e.opts.Metrics.forgotten(m.name, last)
	e.opts.OnChange(m.name, last, false)
}

// schedule sets the member's timer to the machine's next wish. The caller holds mu.
func (e *Engine) schedule(m *member) {
	at := m.machine.WakeAt()
	if at.Equal(m.wake) {
		return
	}
	m.stopTimer()
	if at.IsZero() || !e.has(m) {
		return
	}
	m.wake = at
	m.timer = time.AfterFunc(max(0, time.Until(at)), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.has(m) && m.wake.Equal(at) {
			m.wake = time.Time{}
			e.step(m, Tick{})
		}
	})
}

// uses reports whether anything runs, drains or is being connected upon a connection of the source's.
func (m *member) uses(source string) bool {
	for _, en := range m.engaged {
		if en.force.Load().link.Source == source {
			return true
		}
	}
	for _, a := range m.attempts {
		if a.source == source {
			return true
		}
	}
	return false
}

// quiet reports whether no call of Engage for this name is under way: the next one has to wait for it.
func (m *member) quiet() bool {
	if m.handedOver == nil {
		return true
	}
	select {
	case <-m.handedOver:
		return true
	default:
		return false
	}
}

func (m *member) stopTimer() {
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timer, m.wake = nil, time.Time{}
}

// Get returns the cluster that is engaged under the name. Its errors are multicluster.ErrClusterNotFound for
// a name that no source lists, and a *backends.NotEngagedError for one that is not engaged now. It takes no lock.
func (e *Engine) Get(name multicluster.ClusterName) (cluster.Cluster, error) {
	v, ok := e.served.Load(name)
	if !ok {
		return nil, multicluster.ErrClusterNotFound
	}
	got := v.(*entry)
	if got.cluster == nil {
		s := got.status
		return nil, &backends.NotEngagedError{Name: name.String(), State: s.State, Reason: s.Reason, Message: s.Message}
	}
	return got.cluster, nil
}

// StatusOf returns the status of a name that a source lists. It takes no lock.
func (e *Engine) StatusOf(name multicluster.ClusterName) (Status, bool) {
	v, ok := e.served.Load(name)
	if !ok {
		return Status{}, false
	}
	return v.(*entry).status, true
}

// Statuses returns the status of every name that is listed or still draining.
func (e *Engine) Statuses() map[string]Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[string]Status, len(e.members))
	for name, m := range e.members {
		all[name] = m.machine.Status()
	}
	return all
}

// WaitLeft waits until nothing runs, drains or is being connected any longer upon what the source has said of these
// names, which it has withdrawn, or ctx ends.
func (e *Engine) WaitLeft(ctx context.Context, source string, names []string) error {
	for _, name := range names {
		e.mu.Lock()
		m := e.members[name]
		if m == nil || !m.uses(source) {
			e.mu.Unlock()
			continue
		}
		w := waiter{source, make(chan struct{})}
		m.waiting = append(m.waiting, w)
		e.mu.Unlock()
		select {
		case <-w.done:
		case <-ctx.Done():
			return fmt.Errorf("cluster %q still uses backend %s: %w", name, source, context.Cause(ctx))
		}
	}
	return nil
}

// jitter returns a random number in [0,1).
func jitter() float64 { return rand.Float64() }

// RESTConfigFor returns a plain configuration of the connection that a cluster runs upon now. Its errors are those
// of Get, or say that a credential plugin failed.
func (e *Engine) RESTConfigFor(ctx context.Context, name multicluster.ClusterName) (*rest.Config, error) {
	if _, err := e.Get(name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	var t *transport.Transport
	var foreign cluster.Cluster
	if m := e.members[name.String()]; m != nil && m.machine.current != nil {
		en := m.engaged[m.machine.current.id]
		t, foreign = en.transport, en.force.Load().link.Running
	}
	e.mu.Unlock()
	if foreign != nil {
		return rest.CopyConfig(foreign.GetConfig()), nil
	}
	if t == nil { // it was lost a moment ago
		if _, err := e.Get(name); err != nil {
			return nil, err
		}
		return nil, multicluster.ErrClusterNotFound
	}
	return t.Current().PlainConfig(ctx)
}
