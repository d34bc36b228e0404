package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tributary-fleet/tributary/internal/execplugin"
)

// Transport is an http.RoundTripper over the generation in force. It is safe for concurrent use.
type Transport struct {
	opts    Options
	current atomic.Pointer[Generation]

	wg sync.WaitGroup // a goroutine for each old generation that drains

	mu     sync.Mutex // guards what follows; not held across I/O
	closed bool
	old    map[*Generation]struct{} // those that drain
}

// New returns a transport with g in force, which belongs to it from now on.
func New(g *Generation, opts Options) *Transport {
	t := &Transport{opts: opts.withDefaults(), old: make(map[*Generation]struct{})}
	t.current.Store(g)
	return t
}

// Current returns the generation in force; after Close, the last one that was.
func (t *Transport) Current() *Generation { return t.current.Load() }

// RoundTrip sends a request over the generation in force.
//
// A request to which the server answers 401 is sent once more if the credential has changed meanwhile, by a swap or because a plugin
// has a fresh one: the API server authenticates before it does anything, except
// where it is a proxy for something else. A request with a body is sent again only if
// it has GetBody, which client-go's have.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	k := classify(r)
	asked := false // again, after a 401
	var last *Generation
	var until time.Time
	for {
		g := t.current.Load()
		if g != last {
			last, until = g, g.until(k)
		}
		resp, cred, err := g.send(r, k, until)
		if not, ok := err.(notSentError); ok {
			if t.current.Load() != g {
				continue // the generation, and maybe its plugin, failed after it was replaced
			}
			closeBody(r)
			return nil, not.error
		}
		switch {
		case errors.Is(err, ErrRetired) && (r.Method == http.MethodGet || r.Method == ""):
			// It was being opened when its connections were replaced. Each turn takes another replacement.
			again, ok := rewind(r)
			if !ok {
				return nil, err
			}
			r = again
			continue
		case err != nil:
			return nil, err
		case !refuses(resp, r):
			return resp, nil
		}
		again, mended := t.again(r, until, g, cred, asked)
		if again != nil {
			discard(resp)
			r, asked = again, true
			continue
		}
		if !mended {
			t.tell(g)
		}
		return resp, nil
	}
}

// refuses reports whether the answer to r is the API server's refusal of the connection's credential. It is not if the request
// brought its own, or went through the server to something behind it, which then has done who knows what before it answered 401.
func refuses(resp *http.Response, r *http.Request) bool {
	return resp.StatusCode == http.StatusUnauthorized && !authorizes(r.Header) && !isProxied(r.URL.Path)
}

// again returns the request to send after a 401, if there is a credential that it was not sent with yet and its body can be sent
// again, and whether there is such a credential.
func (t *Transport) again(r *http.Request, until time.Time, g *Generation, cred *execplugin.Credential, asked bool) (again *http.Request, mended bool) {
	switch {
	case asked:
		return nil, false
	case t.current.Load() != g: // by a swap before
	case g.refresh(r.Context(), until, cred):
	case t.current.Load() != g: // by a swap while it waited for the plugin
	default:
		return nil, false
	}
	again, _ = rewind(r)
	return again, true
}

// tell says that the credential of g was refused, if g is in force still.
func (t *Transport) tell(g *Generation) {
	if t.opts.OnUnauthorized == nil || t.current.Load() != g {
		return
	}
	now, last := int64(time.Since(g.made))+1, g.told.Load()
	if last != 0 && now-last < int64(t.opts.UnauthorizedInterval) || !g.told.CompareAndSwap(last, now) {
		return
	}
	t.opts.OnUnauthorized(g)
}

// Swap puts g in force; it belongs to the transport from now on. Requests that begin later go over g. The old generation's
// watches are ended, its requests drained and its connections closed in the background. Swap does no I/O and returns at once.
//
// g must be fresh: one that was in force before, or was closed, answers every request with ErrClosed. Swapping to the generation in force
// does nothing. After Close, g is closed.
func (t *Transport) Swap(g *Generation) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		g.Close()
		return
	}
	old := t.current.Swap(g)
	if old != g {
		t.retire(old)
	}
	t.mu.Unlock()
}

// retire sees a generation off. The caller holds t.mu.
func (t *Transport) retire(old *Generation) {
	old.retire(false)
	t.old[old] = struct{}{}
	t.wg.Go(func() {
		old.wg.Wait()
		t.mu.Lock()
		delete(t.old, old)
		t.mu.Unlock()
	})
}

// Close ends everything at once, watches with io.EOF and other requests with ErrClosed, and waits until every connection
// is closed and every goroutine of the transport has ended, or until ctx ends, when it returns ctx's error. Requests that come later fail
// with ErrClosed. It may be called several times.
func (t *Transport) Close(ctx context.Context) error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		t.retire(t.current.Load())
	}
	for g := range t.old {
		g.retire(true)
	}
	t.mu.Unlock()

	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rewind returns the request with its body at the beginning.
func rewind(r *http.Request) (*http.Request, bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, false
	}
	again := r.WithContext(r.Context())
	again.Body = body
	return again, true
}

// discard lets go of an answer that nobody will see, reading a little so that an HTTP/1.1 connection can be used again.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}
