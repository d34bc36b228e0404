package engagement

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/restmapper"
	"github.com/tributary-fleet/tributary/internal/transport"
)

// memberHost is the host that every cluster's clients are configured with. The transport rewrites it to the
// endpoint in force; a request that came past the transport would fail by this name.
const memberHost = "https://member.tributary.invalid"

// proved is a connection that was tried and found good, and what it is to be used for.
type proved struct {
	link       Link
	generation *transport.Generation // nil for a cluster that somebody else runs
	number     uint64                // the machine's number of the generation
	built      *built                // nil: only to be swapped under a running engagement, or to be closed again
}

// discard closes a connection that is not needed.
func (p *proved) discard(timeout time.Duration) {
	switch {
	case p.built != nil:
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		p.built.close(ctx)
	case p.generation != nil:
		p.generation.Close()
	}
}

// connect runs an attempt and reports its result. running is the engagement that it would take over, if any.
func (e *Engine) connect(ctx context.Context, r *run, m *member, a Connect, running *engaged) {
	p, swapOnly, failure := e.attemptInTurn(ctx, r, m, a, running)

	e.mu.Lock()
	defer e.mu.Unlock()
	m.attempts[a.Generation].cancel()
	delete(m.attempts, a.Generation)
	if !e.has(m) {
		if p != nil {
			r.wg.Go(func() { p.discard(e.opts.DrainTimeout) })
		}
		return
	}
	if failure != nil {
		e.step(m, ConnectFailed{Generation: a.Generation, Failure: *failure, Jitter: jitter()})
		return
	}
	e.preempt(m, p.link)
	m.proved = p
	e.step(m, Connected{Generation: a.Generation, Facts: p.link.Facts, SwapOnly: swapOnly, Jitter: jitter()})
}

// attemptInTurn waits until the attempt may run, and runs it.
func (e *Engine) attemptInTurn(ctx context.Context, r *run, m *member, a Connect, running *engaged) (*proved, uint64, *Failure) {
	place, err := e.connects.enter(ctx, a.Link.Source)
	if err != nil {
		return nil, 0, &Failure{backends.ReasonStopped, "cancelled"}
	}
	defer place.leave()
	began := time.Now()
	p, swapOnly, err := e.attempt(ctx, r, m, a, running, place)
	if ctx.Err() != nil && err != nil {
		return nil, 0, &Failure{backends.ReasonStopped, "cancelled"}
	}
	var failure *Failure
	if err != nil {
		f := classify(err)
		failure = &f
	}
	e.opts.Metrics.connected(m.name, a.Link.Source, time.Since(began), failure)
	return p, swapOnly, failure
}

// attempt proves the connection, and builds a cluster upon it unless it is to be swapped under the running engagement,
// or not to serve at all. Without an error p is set, and with one it is nil.
func (e *Engine) attempt(ctx context.Context, r *run, m *member, a Connect, running *engaged, place *place) (_ *proved, swapOnly uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.ConnectTimeout, errConnectTimeout)
	defer cancel()

	if a.Link.Running != nil {
		var p *proved
		err := r.contain(func() (err error) { // the cluster is somebody else's code
			p, err = e.adopt(ctx, m, a, place)
			return err
		})
		return p, 0, err
	}
	gen, err := transport.NewGeneration(a.Link.Connection, r.transport)
	if err != nil {
		return nil, 0, err
	}
	p := &proved{link: a.Link, generation: gen, number: a.Generation}
	facts := &p.link.Facts
	defer func() {
		if err != nil {
			gen.Close()
		}
	}()
	c := prober{client: &http.Client{Transport: gen}}
	if err := place.await(ctx, c.alive); err != nil {
		return nil, 0, err
	}

	// From here on every question can be asked at once: the server is there and answers.
	var (
		wg         sync.WaitGroup
		surface    *restmapper.Surface
		surfaceErr error
		uidErr     error
		userErr    error
	)
	if running == nil {
		wg.Go(func() { surface, surfaceErr = e.discover(ctx, c.client) })
	}
	wg.Go(func() { facts.UID, uidErr = c.uid(ctx) })
	wg.Go(func() { facts.Version = c.version(ctx) })
	wg.Go(func() { facts.User, facts.Rights, userErr = c.user(ctx) })
	wg.Wait()
	if err := cmp.Or(userErr, uidErr, surfaceErr); err != nil {
		return nil, 0, err
	}
	if running != nil {
		if !sameRights(*facts, a.RunningLink.Facts) {
			facts.MayWatch = c.mayWatch(ctx, running.built)
		}
		if CanSwap(a.RunningLink, p.link) {
			return p, running.id, nil
		}
		if a.SwapOnly {
			return p, 0, nil
		}
		if surface, err = e.mappers.Discover(ctx, c.client, memberHost, nil); err != nil {
			return nil, 0, err
		}
	}
	// Building calls code of the user's: options of the cluster.
	err = r.contain(func() (err error) {
		p.built, err = e.build(r, m.name, gen, surface)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return p, 0, nil
}

// discover finds out what a cluster serves. It asks whether that is what the last cluster did, as is likely in a fleet: nothing
// is transferred then, and the connection need not keep buffers for it. Only surfaces whose tags are proved to be hashes
// of their content are asked for, so no cluster can make another one seem to serve what it does not.
func (e *Engine) discover(ctx context.Context, client *http.Client) (*restmapper.Surface, error) {
	last := e.surface.Load()
	surface, err := e.mappers.Discover(ctx, client, memberHost, last)
	if err == nil && len(surface.Broken) > 0 && last != nil {
		// Kinds of broken groups were taken over from the other cluster, which says nothing about this one.
		return e.mappers.Discover(ctx, client, memberHost, nil)
	}
	if err == nil && surface.Shareable() {
		e.surface.Store(surface)
	}
	return surface, err
}

var errConnectTimeout = fmt.Errorf("connect: %w", context.DeadlineExceeded)

// prober asks a cluster small questions through one round tripper. Every question is bounded by its context.
type prober struct {
	client *http.Client
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// get asks for a path and decodes the answer into v. Another status than 2xx is a *statusError.
func (p prober) get(ctx context.Context, path string, v any) error {
	return p.do(ctx, http.MethodGet, path, nil, v)
}

// do sends a request and decodes the answer into v.
func (p prober) do(ctx context.Context, method, path string, body io.Reader, v any) error {
	answer, err := p.text(ctx, method, path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, errNotAPI) // the decoder's text could repeat the answer
	}
	return nil
}

// text sends a request and returns the answer.
func (p prober) text(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, memberHost+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, unwrapURL(err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %w", method, path, &statusError{resp.StatusCode})
	}
	return answer, nil
}
