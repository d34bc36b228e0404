package restmapper

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RefreshFunc finds out anew what a cluster serves, mostly with [Pool.Discover]. previous is the surface in force; it is never nil.
type RefreshFunc func(ctx context.Context, previous *Surface) (*Surface, error)

// MapperOptions are the options of a Mapper. The zero value means the defaults.
type MapperOptions struct {
	// MissInterval is the least time between two refreshes because of unknown kinds; default 10s.
	// [Mapper.Refresh] is not subject to it.
	MissInterval time.Duration
	// Timeout bounds one refresh; default 10s.
	Timeout time.Duration
}

func (o MapperOptions) withDefaults() MapperOptions {
	o.MissInterval = cmp.Or(o.MissInterval, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	return o
}

// Mapper is the REST mapper of one cluster. Its methods may be called concurrently, and under any lock: all but
// Close return without waiting for anything.
//
// A kind or resource that is not known is answered with a *meta.NoKindMatchError or *meta.NoResourceMatchError, and asked for in the
// background. A Mapper has no goroutine unless a refresh runs or is due.
type Mapper struct {
	refresh RefreshFunc
	options MapperOptions

	state atomic.Pointer[mapperState]

	ctx    context.Context // ends the refreshes; cancelled by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the goroutine of run, if there is one

	mu      sync.Mutex // guards what follows; never held across a refresh or while waiting
	closed  bool
	running bool          // a goroutine is in run
	wanted  bool          // somebody asked since the last refresh began
	hurried chan struct{} // closed when that may not wait for MissInterval; nil when it already was, or nobody asked
	began   time.Time     // when the last refresh began
	err     error         // of the last refresh
	updates int           // calls of Update
}

// mapperState is replaced as a whole, so that a surface and the channel that announces its end belong together.
type mapperState struct {
	surface *Surface
	changed chan struct{}
}

var _ meta.ResettableRESTMapper = (*Mapper)(nil)

// NewMapper returns a mapper that maps by s, or nothing at first if s is nil, and asks refresh for more. Close must
// be called in the end.
func (p *Pool) NewMapper(s *Surface, refresh RefreshFunc, options MapperOptions) *Mapper {
	m := &Mapper{refresh: refresh, options: options.withDefaults()}
	if s == nil {
		s = p.surface(nil, nil, nil)
	} else {
		m.began = time.Now() // s is fresh: what is not in it need not be asked for yet
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.state.Store(&mapperState{s, make(chan struct{})})
	return m
}

// Surface is the surface in force.
func (m *Mapper) Surface() *Surface { return m.state.Load().surface }

// Changed returns a channel that is closed when other kinds are mapped than at the time of the call. To miss nothing, call it before
// looking something up, and again after each change.
func (m *Mapper) Changed() <-chan struct{} { return m.state.Load().changed }

// Update puts s in force, for instance after a new connection to the cluster was proved with a discovery. It counts as a refresh, and
// what a refresh brings that began before is dropped: it may come from the old connection.
func (m *Mapper) Update(s *Surface) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began, m.err = time.Now(), nil
	m.updates++
	m.put(s)
}

func (m *Mapper) put(s *Surface) {
	for {
		old := m.state.Load()
		next := &mapperState{s, old.changed}
		same := old.surface.shared == s.shared
		if !same {
			next.changed = make(chan struct{})
		}
		if m.state.CompareAndSwap(old, next) {
			if !same {
				close(old.changed)
			}
			return
		}
	}
}

// Refresh asks the cluster now what it serves, and returns at once. Calls while a refresh runs are answered by one more, as the
// running one may have missed what they are about. The outcome is told by Changed and Err.
func (m *Mapper) Refresh() { m.ask(true) }

// Reset is Refresh: what was known stays in force until more is known.
func (m *Mapper) Reset() { m.Refresh() }

// Err is why the last refresh failed; nil if it did not, or there was none.
func (m *Mapper) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close ends a running refresh and waits for it. The Mapper still maps afterwards, and refreshes no more.
func (m *Mapper) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
}

// ask makes sure that a refresh begins after this call: at once if hurry, else when MissInterval allows.
func (m *Mapper) ask(hurry bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if !m.wanted {
		m.wanted = true
		m.hurried = make(chan struct{})
	}
	if hurry && m.hurried != nil {
		close(m.hurried)
		m.hurried = nil
	}
	if !m.running {
		m.running = true
		m.wg.Go(m.run)
	}
}

// run refreshes for as long as somebody asks.
func (m *Mapper) run() {
	for {
		hurried, due, ok := m.next()
		if !ok {
			return
		}
		if hurried != nil && due > 0 {
			timer := time.NewTimer(due)
			select {
			case <-hurried:
			case <-timer.C:
			case <-m.ctx.Done():
			}
			timer.Stop()
		}
		updates, ok := m.begin()
		if !ok {
			return
		}
		m.refreshOnce(updates)
	}
}

// next tells how long the next refresh has to wait, and what ends the wait early (nil: it need not wait). Not ok: nobody asks any more.
func (m *Mapper) next() (hurried <-chan struct{}, due time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.wanted || m.closed {
		m.running = false
		return nil, 0, false
	}
	if !m.began.IsZero() {
		due = time.Until(m.began.Add(m.options.MissInterval))
	}
	return m.hurried, due, true
}

// begin takes what was asked so far as being answered by the refresh that begins now. It returns the number of updates so far.
func (m *Mapper) begin() (updates int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.running = false
		return 0, false
	}
	m.wanted, m.hurried = false, nil
	m.began = time.Now()
	return m.updates, true
}

// refreshOnce refreshes, unless somebody who knows better comes first.
func (m *Mapper) refreshOnce(updates int) {
	ctx, cancel := context.WithTimeout(m.ctx, m.options.Timeout)
	defer cancel()
	s, err := m.refresh(ctx, m.Surface())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.updates != updates {
		return
	}
	if m.err = err; err == nil {
		m.put(s)
	}
}

// noted passes err on, and asks for a refresh if it says that something is not known.
func (m *Mapper) noted(err error) error {
	if meta.IsNoMatchError(err) {
		m.ask(false)
	}
	return err
}

// KindFor implements meta.RESTMapper.
func (m *Mapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	kind, err := m.Surface().RESTMapper().KindFor(r)
	return kind, m.noted(err)
}

// KindsFor implements meta.RESTMapper.
func (m *Mapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	kinds, err := m.Surface().RESTMapper().KindsFor(r)
	return kinds, m.noted(err)
}

// ResourceFor implements meta.RESTMapper.
func (m *Mapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	resource, err := m.Surface().RESTMapper().ResourceFor(r)
	return resource, m.noted(err)
}

// ResourcesFor implements meta.RESTMapper.
func (m *Mapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	resources, err := m.Surface().RESTMapper().ResourcesFor(r)
	return resources, m.noted(err)
}

// RESTMapping implements meta.RESTMapper.
func (m *Mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.Surface().RESTMapper().RESTMapping(kind, versions...)
	return mapping, m.noted(err)
}

// RESTMappings implements meta.RESTMapper.
func (m *Mapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	mappings, err := m.Surface().RESTMapper().RESTMappings(kind, versions...)
	return mappings, m.noted(err)
}

// ResourceSingularizer implements meta.RESTMapper.
func (m *Mapper) ResourceSingularizer(resource string) (string, error) {
	singular, err := m.Surface().RESTMapper().ResourceSingularizer(resource)
	return singular, m.noted(err)
}
