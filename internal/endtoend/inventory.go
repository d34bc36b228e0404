package endtoend

import (
	"context"
	"sync"
	"testing"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
)

// Inventory is a backend that says what a test tells it to.
type Inventory struct {
	Running chan struct{} // receives one value for each run that has begun
	Fail    chan error    // ends the present run

	mu      sync.Mutex
	engager backends.Engager
}

// NewInventory returns an inventory that says nothing yet.
func NewInventory() *Inventory {
	return &Inventory{Running: make(chan struct{}, 16), Fail: make(chan error)}
}

// Run is what a backend has to have.
func (i *Inventory) Run(ctx context.Context, e backends.Engager) error {
	i.mu.Lock()
	i.engager = e
	i.mu.Unlock()
	i.Running <- struct{}{}
	select {
	case err := <-i.Fail:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Say returns the engager of the present run.
func (i *Inventory) Say() backends.Engager {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.engager
}

// Declare adds an inventory to the fleet under a name, and waits until it runs.
func (f *Fleet) Declare(t testing.TB, backend string) *Inventory {
	t.Helper()
	return f.DeclareUnder(t, backend, aggregate.BackendOptions{})
}

// DeclareUnder is like Declare, with options.
func (f *Fleet) DeclareUnder(t testing.TB, backend string, opts aggregate.BackendOptions) *Inventory {
	t.Helper()
	inv := NewInventory()
	if err := f.Add(backend, inv, opts); err != nil {
		t.Fatal(err)
	}
	<-inv.Running
	return inv
}
