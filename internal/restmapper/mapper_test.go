package restmapper

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	pod    = schema.GroupKind{Kind: "Pod"}
	widget = schema.GroupKind{Group: "g0.example.com", Kind: "Widget0"}
)

// fleetCluster stands for a cluster whose surface can change and whose answers can be held back.
type fleetCluster struct {
	pool *Pool

	mu     sync.Mutex
	groups []group
	err    error
	delay  time.Duration
	calls  atomic.Int32
	active atomic.Int32
	most   atomic.Int32 // refreshes at once
}

func (c *fleetCluster) refresh(ctx context.Context, previous *Surface) (*Surface, error) {
	c.calls.Add(1)
	if n := c.active.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	defer c.active.Add(-1)
	c.mu.Lock()
	groups, err, delay := c.groups, c.err, c.delay
	c.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return c.pool.surface(groups, nil, previous), nil
}

func (c *fleetCluster) install(groups []group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups = groups
}

func newFleetCluster() (*fleetCluster, *Surface) {
	c := &fleetCluster{pool: NewPool(), groups: small()}
	return c, c.pool.surface(c.groups, nil, nil)
}

func serves(m *Mapper, gk schema.GroupKind) bool {
	_, err := m.RESTMapping(gk)
	return err == nil
}

// A miss is answered at once, whatever the cluster does, and leads to one refresh however many miss.
func TestMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newFleetCluster()
		c.delay = 3 * time.Second
		m := c.pool.NewMapper(s, c.refresh, MapperOptions{})
		defer m.Close()
		c.install(append(small(), crds(1)...))

		start := time.Now()
		changed := m.Changed()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := m.RESTMapping(widget); !meta.IsNoMatchError(err) {
					t.Errorf("RESTMapping: %v, want no match", err)
				}
				if _, err := m.KindsFor(schema.GroupVersionResource{Group: widget.Group, Resource: "widget0s"}); !meta.IsNoMatchError(err) {
					t.Errorf("KindsFor: %v, want no match", err)
				}
				if !serves(m, pod) {
					t.Error("a known kind is not mapped while another is asked for")
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("the calls waited %v", took)
		}

		<-changed
		if got, want := time.Since(start), 13*time.Second; got != want {
			t.Errorf("found after %v, want %v: the rest of MissInterval and one refresh", got, want)
		}
		if !serves(m, widget) {
			t.Error("the new kind is not mapped")
		}
		synctest.Wait()
		if calls := c.calls.Load(); calls != 1 {
			t.Errorf("%d refreshes, want 1", calls)
		}
	})
}

// Whoever keeps asking for what does not exist costs one refresh in each MissInterval.
func TestMissesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newFleetCluster()
		m := c.pool.NewMapper(s, c.refresh, MapperOptions{MissInterval: 10 * time.Second})
		defer m.Close()
		for range 1000 { // 100 s
			serves(m, widget)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if calls := c.calls.Load(); calls < 9 || calls > 10 {
			t.Errorf("%d refreshes in 100 s, want about 10", calls)
		}
	})
}

// Refresh does not wait for MissInterval, not even when a miss waits for it already.
func TestRefreshHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newFleetCluster()
		m := c.pool.NewMapper(s, c.refresh, MapperOptions{})
		defer m.Close()
		c.install(append(small(), crds(1)...))
		start := time.Now()
		serves(m, widget) // due in 10 s
		synctest.Wait()
		changed := m.Changed()
		m.Refresh()
		<-changed
		if got := time.Since(start); got != 0 {
			t.Errorf("refreshed after %v, want at once", got)
		}
	})
}

// Calls of Refresh while one runs are answered by exactly one more: the running one may have read too early.
func TestRefreshIsSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newFleetCluster()
		c.delay = time.Second
		m := c.pool.NewMapper(s, c.refresh, MapperOptions{})
		defer m.Close()
		m.Refresh()
		synctest.Wait()
		c.install(append(small(), crds(1)...))
		for range 50 {
			m.Refresh()
			m.Reset()
		}
		time.Sleep(2500 * time.Millisecond)
		if !serves(m, widget) {
			t.Error("what was installed before the last Refresh is not known")
		}
		if calls, most := c.calls.Load(), c.most.Load(); calls != 2 || most != 1 {
			t.Errorf("%d refreshes, %d at once; want 2 and 1", calls, most)
		}
	})
}

// A refresh that fails or hangs changes nothing but Err.
func TestFailedRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newFleetCluster()
		m := c.pool.NewMapper(s, c.refresh, MapperOptions{Timeout: 5 * time.Second})
		defer m.Close()
		down := errors.New("down")
		c.err = down
		m.Refresh()
		synctest.Wait()
		if err := m.Err(); !errors.Is(err, down) || m.Surface() != s {
			t.Errorf("err %v, surface %v; want %v and %v", err, m.Surface().Hash(), down, s.Hash())
		}
		c.mu.Lock()
		c.err, c.delay = nil, time.Hour
		c.mu.Unlock()
		m.Refresh()
		time.Sleep(6 * time.Second)
		if err := m.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v, want a deadline", err)
		}
		m.Update(s)
		if err := m.Err(); err != nil {
			t.Errorf("err = %v after an Update", err)
		}
	})
}

// Only a change of what is mapped is announced.
func TestChanged(t *testing.T) {
	c, s := newFleetCluster()
	m := c.pool.NewMapper(nil, c.refresh, MapperOptions{})
	defer m.Close()
	if m.Surface().Serves(pod.WithVersion("")) {
		t.Error("a mapper without a surface maps")
	}
	for _, step := range []struct {
		surface *Surface
		changes bool
	}{
		{s, true},
		{c.pool.surface(small(), nil, nil), false},
		{c.pool.surface(append(small(), crds(1)...), nil, nil), true},
		{s, true},
	} {
		before := m.Changed()
		m.Update(step.surface)
		changed := false
		select {
		case <-before:
			changed = true
		default:
		}
		if changed != step.changes || m.Surface() != step.surface {
			t.Errorf("surface %v: changed = %v, want %v", step.surface.Hash(), changed, step.changes)
		}
	}
}

// Close ends a refresh that runs or is waited for, and is final.
func TestClose(t *testing.T) {
	for name, ask := range map[string]func(*Mapper){
		"running": (*Mapper).Refresh,
		"waiting": func(m *Mapper) { serves(m, widget) },
		"idle":    func(*Mapper) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := newFleetCluster()
				c.delay = time.Hour
				m := c.pool.NewMapper(s, c.refresh, MapperOptions{Timeout: 2 * time.Hour})
				ask(m)
				synctest.Wait()
				start := time.Now()
				m.Close()
				m.Close()
				if took := time.Since(start); took != 0 {
					t.Errorf("Close took %v", took)
				}
				calls := c.calls.Load()
				m.Refresh()
				serves(m, widget)
				synctest.Wait()
				if got := c.calls.Load(); got != calls {
					t.Error("a closed mapper refreshed")
				}
				if !serves(m, pod) {
					t.Error("a closed mapper no longer maps")
				}
			})
		})
	}
}

// A surface is freed when the last cluster that serves it goes, and found again as long as one does.
func TestUnusedSurfacesAreFreed(t *testing.T) {
	p := NewPool()
	a := p.NewMapper(p.surface(crds(100), nil, nil), nil, MapperOptions{})
	b := p.NewMapper(p.surface(crds(100), nil, nil), nil, MapperOptions{})
	if a.Surface().RESTMapper() == nil || a.Surface().shared != b.Surface().shared {
		t.Fatal("two clusters with one surface have two mappers")
	}
	b.Update(p.surface(crds(50), nil, nil))
	eventually(t, func() bool { return p.Len() == 2 })
	b.Update(a.Surface())
	eventually(t, func() bool { return p.Len() == 1 && p.entries() == 1 })
	runtime.KeepAlive(a)
	a.Close()
	b.Close()
	a, b = nil, nil
	eventually(t, func() bool { return p.Len() == 0 && p.entries() == 0 })
}

// Clusters that connect at once share as well.
func TestConcurrentIntern(t *testing.T) {
	p := NewPool()
	surfaces := make([]*Surface, 64)
	var wg sync.WaitGroup
	for i := range surfaces {
		wg.Go(func() { surfaces[i] = p.surface(crds(200), nil, nil) })
	}
	wg.Wait()
	for _, s := range surfaces {
		if s.shared != surfaces[0].shared || s.Kinds() != 200 || s.RESTMapper() == nil {
			t.Fatalf("surface %v with %d kinds, want %v with 200", s.Hash(), s.Kinds(), surfaces[0].Hash())
		}
	}
}

func (p *Pool) entries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tables)
}

// eventually runs the garbage collector until the condition holds; cleanups run some time after it.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Fatal("the condition never held")
}

// A refresh that began before an Update and ends after it brings what the old connection said.
func TestLateRefreshAfterUpdate(t *testing.T) {
	for name, err := range map[string]error{"succeeds": nil, "fails": errors.New("the old connection is gone")} {
		t.Run(name, func(t *testing.T) {
			p := NewPool()
			old, fresh := p.surface(small(), nil, nil), p.surface(append(small(), crds(1)...), nil, nil)
			asked, answer := make(chan struct{}), make(chan struct{})
			m := p.NewMapper(nil, func(context.Context, *Surface) (*Surface, error) {
				close(asked)
				<-answer
				return old, err
			}, MapperOptions{})
			m.Refresh()
			<-asked
			m.Update(fresh)
			close(answer)
			m.wg.Wait()
			if m.Surface() != fresh || m.Err() != nil {
				t.Errorf("the late refresh counts: hash %v, want %v; error %v", m.Surface().Hash(), fresh.Hash(), m.Err())
			}
			m.Close()
		})
	}
}
