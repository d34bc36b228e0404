package execplugin

import (
	"context"
	"math/rand/v2"
	"sync"
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
	close  sync.Once
	done   chan struct{} // closed by Close

	// The shared mu guards these. They are this source's alone: a server that refuses everything must not keep
	// others, which the same credential is for, from getting a fresh one.
	refused   int       // runs in a row, for the sake of a 401, that brought the refused credential again
	refreshOK time.Time // not to be run for the sake of a 401 before
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
	landings  uint64    // runs that brought a credential
	failures  int       // runs that failed in a row
	err       error     // of the last run
	retryAt   time.Time // not to be run again before
}

// flight is one run that any number of callers wait for.
type flight struct {
	done chan struct{} // closed at the end; cred and err are valid then
	cred *Credential
	err  error

	refused map[*Source]*Credential // who waits for it after a 401, and to which credential; guarded by the shared mu
}

// Credential returns the credential, and runs the plugin if there is none yet or the last one has expired. One
// that is about to expire is returned, and refreshed in the background. The plugin is run once at a time. If ctx ends earlier, the
// run goes on for those who ask next.
//
// After a failure the plugin is not run again for a while, and its error is returned at once. The error is an *[Error], [ErrClosed],
// or ctx's.
func (src *Source) Credential(ctx context.Context) (*Credential, error) {
	f, cred, err := src.now(time.Now())
	if f == nil {
		return cred, err
	}
	return src.wait(ctx, f)
}

// Refresh returns a credential to try after the server refused stale with 401: the present one if it is another already, else
// what a new run brings. Such runs are rate limited for each Source; in between, and if the plugin insists on the refused credential, what is returned equals stale.
func (src *Source) Refresh(ctx context.Context, stale *Credential) (*Credential, error) {
	f, cred, err := src.refuse(time.Now(), stale)
	if f == nil {
		return cred, err
	}
	return src.wait(ctx, f)
}

// Close releases the source; whoever waits for its credential gets [ErrClosed]. It may be called several times, and does not wait for
// a plugin that runs; [Runner.Close] does.
func (src *Source) Close() {
	src.close.Do(func() {
		close(src.done)
		src.shared.runner.release(src.shared)
	})
}

// closed reports whether the source or the runner has been closed.
func (src *Source) closed() bool {
	select {
	case <-src.done:
		return true
	default:
		return src.shared.ctx.Err() != nil
	}
}

// now returns the credential or error of this moment, or a run to wait for.
func (src *Source) now(now time.Time) (*flight, *Credential, error) {
	s := src.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if src.closed() {
		return nil, nil, ErrClosed
	}
	if s.cred.validAt(now) {
		if !s.refreshAt.IsZero() && !now.Before(s.refreshAt) && s.flight == nil && !now.Before(s.retryAt) {
			s.launch()
		}
		return nil, s.cred, nil
	}
	if s.flight == nil {
		if now.Before(s.retryAt) {
			return nil, nil, s.err
		}
		s.launch()
	}
	return s.launched()
}

// refuse returns the credential of this moment, or a run to wait for, after stale was refused.
func (src *Source) refuse(now time.Time, stale *Credential) (*flight, *Credential, error) {
	s := src.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case src.closed():
		return nil, nil, ErrClosed
	case s.cred.validAt(now) && !s.cred.Equal(stale):
		return nil, s.cred, nil
	case s.flight != nil: // whatever it is for
	case now.Before(src.refreshOK) || now.Before(s.retryAt):
		return nil, stale, nil
	default:
		s.launch()
	}
	if s.flight != nil {
		s.flight.refused[src] = stale
	}
	return s.launched()
}

// launched returns the run that is under way; there is none if the runner was closed meanwhile. The caller holds s.mu.
func (s *shared) launched() (*flight, *Credential, error) {
	if s.flight == nil {
		return nil, nil, ErrClosed
	}
	return s.flight, nil, nil
}

// launch starts a run. The caller holds s.mu.
func (s *shared) launch() {
	f := &flight{done: make(chan struct{}), refused: make(map[*Source]*Credential)}
	s.flight = f
	suspect := s.failures > 0
	started := s.runner.start(func() {
		f.cred, f.err = s.runner.run(s.ctx, s.exec, s.endpoint, suspect)
		s.landed(time.Now(), f)
	})
	if !started {
		f.err = ErrClosed
		s.flight = nil
		close(f.done)
	}
}

// landed takes in what a run brought.
func (s *shared) landed(now time.Time, f *flight) {
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
	for src, stale := range f.refused {
		if f.cred.Equal(stale) {
			src.refused++
		} else {
			src.refused = 0
		}
		src.refreshOK = now.Add(backoff(minRefresh, maxRefresh, src.refused+1))
	}
	s.landings++
	f.cred.number = s.landings
	s.cred, s.refreshAt = f.cred, f.cred.refreshAt(now)
}

// wait waits for a run.
func (src *Source) wait(ctx context.Context, f *flight) (*Credential, error) {
	select {
	case <-f.done:
		return f.cred, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-src.done:
		return nil, ErrClosed
	case <-src.shared.ctx.Done():
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
