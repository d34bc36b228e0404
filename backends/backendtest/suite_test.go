package backendtest_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/connection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an inventory that is a map, and the smallest backend that conforms.
type memory struct {
	mu      sync.Mutex
	entries map[string][]byte // kubeconfigs
	away    bool
	changed chan struct{}
}

func newMemory() *memory {
	return &memory{entries: map[string][]byte{}, changed: make(chan struct{})}
}

func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

var errAway = errors.New("away")

func (m *memory) read() (map[string][]byte, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return nil, m.changed, errAway
	}
	entries := map[string][]byte{}
	for name, data := range m.entries {
		entries[name] = data
	}
	return entries, m.changed, nil
}

func (m *memory) Run(ctx context.Context, engager backends.Engager) error {
	known := map[string]bool{}
	synced := false
	for {
		entries, changed, err := m.read()
		if err != nil {
			engager.Report(backends.Health{Reason: backends.ReasonHubUnreachable, Message: err.Error()})
		} else {
			engager.Report(backends.Health{})
			for name, data := range entries {
				known[name] = true
				m.say(ctx, engager, name, data)
			}
			for name := range known {
				if _, ok := entries[name]; !ok {
					delete(known, name)
					engager.Disengage(name, backends.ReasonDeleted)
				}
			}
			if !synced {
				synced = true
				engager.Synced()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (m *memory) say(ctx context.Context, engager backends.Engager, name string, data []byte) {
	source := backends.ObjectReference{Kind: "Entry", Name: name}
	result, err := connection.ParseKubeconfig(ctx, data, connection.KubeconfigOptions{})
	if err != nil {
		engager.Hold(name, backends.Hold{Reason: backends.ReasonInvalidKubeconfig, Message: err.Error(), Rejected: true, Source: source})
		return
	}
	engager.Engage(backends.Cluster{Name: name, Connection: result.Spec, Source: source})
}

func TestSuiteOnTheSmallestBackend(t *testing.T) {
	var m *memory
	backendtest.Run(t, backendtest.Harness{
		New: func(*testing.T) backendtest.Inventory {
			m = newMemory()
			m := m
			return backendtest.Inventory{
				Backend: m,
				Member:  func(name string) string { return name },
				Put: func(_ *testing.T, name string, a backendtest.Access) {
					m.change(func() { m.entries[name] = a.Kubeconfig() })
				},
				Break: func(_ *testing.T, name string) {
					m.change(func() { m.entries[name] = backendtest.BrokenKubeconfig() })
				},
				Delete: func(_ *testing.T, name string) { m.change(func() { delete(m.entries, name) }) },
			}
		},
		StopHub:  func(*testing.T) { m.change(func() { m.away = true }) },
		StartHub: func(*testing.T) { m.change(func() { m.away = false }) },
	})
}

func TestRecorderTellsTheLastWord(t *testing.T) {
	var r backendtest.Recorder
	r.Engage(backends.Cluster{Name: "a"})
	r.Hold("b", backends.Hold{Reason: backends.ReasonPaused})
	r.Engage(backends.Cluster{Name: "b"})
	r.Hold("a", backends.Hold{Reason: backends.ReasonPaused})
	r.Disengage("c", backends.ReasonDeleted)
	r.Report(backends.Health{Reason: backends.ReasonHubUnreachable})
	r.Synced()
	r.WaitHeld(t, "a", backends.ReasonPaused)
	r.WaitEngaged(t, "b")
	r.WaitDisengaged(t, "c")
	r.WaitHealth(t, backends.ReasonHubUnreachable)
	r.WaitSynced(t)
	if n := len(r.Calls()); n != 7 {
		t.Errorf("%d calls were recorded, want 7", n)
	}
}
