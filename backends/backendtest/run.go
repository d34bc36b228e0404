package backendtest

import (
	"context"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/backends"
)

// Running is a backend that runs.
type Running struct {
	*Recorder

	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Start runs a backend until the test ends or Stop is called.
func Start(t testing.TB, backend backends.Backend) *Running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Running{Recorder: &Recorder{}, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = backend.Run(ctx, r.Recorder)
		r.end()
	}()
	t.Cleanup(func() { r.Stop(t) })
	return r
}

// Stop ends the backend's context and waits until Run has returned, which has to be nil. Stopping again does nothing.
func (r *Running) Stop(t testing.TB) {
	t.Helper()
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(Patience):
		t.Fatalf("Run did not return within %s after its context had ended", Patience)
	}
	if r.err != nil {
		t.Errorf("Run returned an error after its context had ended: %v", r.err)
	}
}
