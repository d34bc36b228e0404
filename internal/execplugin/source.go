package execplugin

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

const (
	// maxLead is the most by which a credential is refreshed before it expires.
	maxLead = 10 * time.Minute
	// minBackoff and maxBackoff bound the wait after a failed run. It doubles with every failure.
	minBackoff, maxBackoff = time.Second, 5 * time.Minute
	// minRefresh and maxRefresh bound the time between two runs for the sake of a 401. It doubles each time the plugin returns the
	// very credential that was refused: then running it is of no use.
	minRefresh, maxRefresh = 5 * time.Second, 5 * time.Minute
)

// Source is the credential of one plugin. It is safe for concurrent use.
type Source struct {
	shared *shared
	closed atomic.Bool
}

// shared is what all sources of one credential share.
type shared struct {
	runner   *Runner
	key      sourceKey
	exec     connection.Exec
	endpoint connection.Endpoint
	ctx      context.Context // ends when the last user closes, or the runner
	cancel   context.CancelFunc
	users    int // guarded by the runner's mu

	mu        sync.Mutex // guards what follows; never held while the plugin runs
	cred      *Credential
	refreshAt time.Time // when cred should be refreshed; zero: never
	flight    *flight   // the run that is under way; nil: none
	failures  int       // runs that failed in a row
	err       error     // of the last run
	retryAt   time.Time // not to be run again before
	refused   int       // runs in a row, for the sake of a 401, that brought the refused credential again
	refreshOK time.Time // not to be run for the sake of a 401 before
}

// flight is one run that any number of callers wait for.
type flight struct {
	done chan struct{} // closed at the end; cred and err are valid then
	cred *Credential
	err  error
}

// Credential returns the credential, and runs the plugin if there is none yet or the last one has expired. One
// that is about to expire is returned, and refreshed in the background. The plugin is run once at a time. If ctx ends earlier, the
// run goes on for those who ask next.
//
// After a failure the plugin is not run again for a while, and its error is returned at once. The error is an *[Error], [ErrClosed],
// or ctx's.
func (s *Source) Credential(ctx context.Context) (*Credential, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	f, cred, err := s.shared.now(time.Now())
	if f == nil {
		return cred, err
	}
	return s.shared.wait(ctx, f)
}

// Refresh returns a credential to try after the server refused stale with 401: the present one if it is another already, else
// what a new run brings. Such runs are rate limited; in between, and if the plugin insists on the refused credential, what is returned equals stale.
func (s *Source) Refresh(ctx context.Context, stale *Credential) (*Credential, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	f, cred, err := s.shared.refused401(time.Now(), stale)
	if f == nil {
		return cred, err
	}
	return s.shared.wait(ctx, f)
}

// Close releases the source. It may be called several times, and does not wait for a plugin that runs; [Runner.Close] does.
func (s *Source) Close() {
	if !s.closed.Swap(true) {
		s.shared.runner.release(s.shared)
	}
}

// now returns the credential or error of this moment, or a run to wait for.
func (s *shared) now(now time.Time) (*flight, *Credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, nil, ErrClosed
	}
	if s.cred.validAt(now) {
		if !s.refreshAt.IsZero() && !now.Before(s.refreshAt) && s.flight == nil && !now.Before(s.retryAt) {
			s.launch(nil)
		}
		return nil, s.cred, nil
	}
	if s.flight == nil {
		if now.Before(s.retryAt) {
			return nil, nil, s.err
		}
		s.launch(nil)
	}
	return s.launched()
}

func (s *shared) refused401(now time.Time, stale *Credential) (*flight, *Credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return nil, nil, ErrClosed
	case s.cred.validAt(now) && !s.cred.Equal(stale):
		return nil, s.cred, nil
	case s.flight != nil:
		return s.flight, nil, nil
	case now.Before(s.refreshOK) || now.Before(s.retryAt):
		return nil, stale, nil
	}
	s.launch(stale)
	return s.launched()
}

// launched returns the run that is under way; there is none if the runner was closed meanwhile. The caller holds s.mu.
func (s *shared) launched() (*flight, *Credential, error) {
	if s.flight == nil {
		return nil, nil, ErrClosed
	}
	return s.flight, nil, nil
}

// launch starts a run. stale is the credential that was refused, or nil if that is not why. The caller holds s.mu.
func (s *shared) launch(stale *Credential) {
	f := &flight{done: make(chan struct{})}
	s.flight = f
	suspect := s.failures > 0
	started := s.runner.start(func() {
		f.cred, f.err = s.runner.run(s.ctx, s.exec, s.endpoint, suspect)
		s.landed(time.Now(), f, stale)
	})
	if !started {
		f.err = ErrClosed
		s.flight = nil
		close(f.done)
	}
}

// landed takes in what a run brought.
func (s *shared) landed(now time.Time, f *flight, stale *Credential) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(f.done)
	s.flight = nil
	if f.err == nil && !f.cred.validAt(now) {
		f.err = &Error{Command: s.exec.Command, Reason: ReasonExpired, Detail: "returned a credential that has expired"}
	}
	if f.err != nil {
		f.cred = nil
		if s.ctx.Err() != nil {
			f.err = ErrClosed // killed because it was closed: says nothing about the plugin
			return
		}
		s.failures++
		s.err = f.err
		s.retryAt = now.Add(backoff(minBackoff, maxBackoff, s.failures))
		return
	}
	s.failures, s.err, s.retryAt = 0, nil, time.Time{}
	if stale != nil {
		if f.cred.Equal(stale) {
			s.refused++
		} else {
			s.refused = 0
		}
		s.refreshOK = now.Add(backoff(minRefresh, maxRefresh, s.refused+1))
	}
	s.cred, s.refreshAt = f.cred, f.cred.refreshAt(now)
}

// wait waits for a run.
func (s *shared) wait(ctx context.Context, f *flight) (*Credential, error) {
	select {
	case <-f.done:
		return f.cred, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ctx.Done():
		return nil, ErrClosed
	}
}

// backoff returns the wait after the nth failure in a row: doubling from lo to hi, and the later half of it random.
func backoff(lo, hi time.Duration, n int) time.Duration {
	d := hi
	if n < 16 {
		d = min(lo<<(n-1), hi)
	}
	return d/2 + rand.N(d/2+1)
}

// validAt reports whether the credential can be used; a nil one cannot.
func (c *Credential) validAt(now time.Time) bool {
	return c != nil && (c.Expiry.IsZero() || now.Before(c.Expiry))
}

// refreshAt is when to refresh a credential that is received now: before the last tenth to fifth of its life, at random, so
// that credentials which were fetched together are not refreshed together.
func (c *Credential) refreshAt(now time.Time) time.Time {
	if c.Expiry.IsZero() {
		return time.Time{}
	}
	life := c.Expiry.Sub(now)
	return c.Expiry.Add(-min(life/10+rand.N(life/10+1), maxLead))
}
