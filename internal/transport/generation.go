package transport

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/execplugin"
)

// Generation is one connection made ready to carry requests. It is safe for concurrent use.
//
// It begins fresh, for proving; [New] or [Transport.Swap] puts it in force, and from then on belongs to the Transport. One that
// never comes into force is ended by [Generation.Close]. Once ended, it cannot come into force again.
type Generation struct {
	spec     connection.Spec
	opts     Options
	endpoint endpoint
	headers  []header         // impersonation and user agent: added to requests that have none
	static   *tls.Certificate // of the Spec

	impersonates bool // some of headers do so

	source  *execplugin.Source
	secrets []string // what no error may hold

	made time.Time
	told atomic.Int64 // when OnUnauthorized was called last, in nanoseconds since made, by the monotonic clock; 0: never

	force chan struct{}  // closed when everything is to end at once
	wg    sync.WaitGroup // drains of wires that were replaced within the generation

	// mu guards what follows and the registries of the wires. It is never held across I/O.
	mu      sync.Mutex
	wire    *wire // carries new requests; nil until the first one
	retired bool  // no new requests
	forced  bool  // force is closed
	// cred is the plugin's credential that auth was made from: the newest that a request has come with.
	cred *execplugin.Credential
	auth []string // value of the Authorization header; nil: none
}

// header is a header to add, ready to be put into a request: Values is shared and must not be written to.
type header struct {
	key          string
	values       []string
	impersonates bool
}

// NewGeneration makes a connection ready. It does no I/O: no connection is made and no plugin is run before
// the first request. The error is a *[SpecError].
//
// A bearer token wins over a credential plugin, and that one over basic auth. A request that has an Authorization header already
// keeps it, and one that impersonates already keeps that, as with client-go. Proxies of the environment are never used.
func NewGeneration(spec connection.Spec, opts Options) (*Generation, error) {
	opts = opts.withDefaults()
	g := &Generation{spec: spec, opts: opts, force: make(chan struct{}), made: time.Now()}
	var err error
	if g.endpoint, err = parseEndpoint(spec.Endpoint); err != nil {
		return nil, err
	}
	if g.static, err = parseCertificate(spec.Auth); err != nil {
		return nil, err
	}
	if g.headers, err = parseImpersonation(spec.Auth.Impersonate); err != nil {
		return nil, err
	}
	g.impersonates = len(g.headers) > 0
	if opts.UserAgent != "" {
		g.headers = append(g.headers, header{key: "User-Agent", values: []string{opts.UserAgent}})
	}
	if g.auth, err = staticAuthorization(spec.Auth); err != nil {
		return nil, err
	}
	g.secrets = secretsOf(spec)
	if spec.Auth.Exec != nil && spec.Auth.Token.IsZero() {
		if opts.Exec == nil {
			return nil, &SpecError{"Auth.Exec", "credential plugins are not enabled"}
		}
		g.source = opts.Exec.Source(*spec.Auth.Exec, spec.Endpoint)
	}
	return g, nil
}

// Spec returns the connection that the generation was made from.
func (g *Generation) Spec() connection.Spec { return g.spec }

// RoundTrip sends one request over the generation, whether it is in force or not, with the same rewriting,
// credential and deadlines. It is for proving a generation before the flip.
//
// A refused credential (401) of a plugin is refreshed once and asked again with; otherwise the answer is the caller's to judge.
func (g *Generation) RoundTrip(r *http.Request) (*http.Response, error) {
	k := classify(r)
	until := g.until(k)
	resp, cred, err := g.send(r, k, until)
	if err == nil && refuses(resp, r) && g.refresh(r.Context(), until, cred) {
		if again, ok := rewind(r); ok {
			discard(resp)
			r = again
			resp, _, err = g.send(r, k, until)
		}
	}
	if not, ok := err.(notSentError); ok {
		closeBody(r)
		return nil, not.error
	}
	return resp, err
}

// until returns the moment by which a request of the kind that begins now is to be answered; zero: there is none.
func (g *Generation) until(k kind) time.Time {
	if d := g.opts.Deadlines.of(k); d >= 0 {
		return time.Now().Add(d)
	}
	return time.Time{}
}

// Close ends a generation that never came into force: its requests fail with ErrClosed, its connections are closed.
// One that is in force is ended by its Transport.
func (g *Generation) Close() {
	g.retire(true)
	g.wg.Wait()
}

// refresh reports whether the plugin has another credential after a 401 to cred. It waits for the plugin, but no longer than
// until the request's deadline.
func (g *Generation) refresh(ctx context.Context, until time.Time, cred *execplugin.Credential) bool {
	if g.source == nil || cred == nil {
		return false
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	fresh, err := g.source.Refresh(ctx, cred)
	return err == nil && !fresh.Equal(cred)
}

// retire ends the acceptance of requests; with force, also everything in flight, at once. What is in flight is
// drained by goroutines that g.wg counts.
func (g *Generation) retire(force bool) {
	g.mu.Lock()
	g.retired = true
	if w := g.wire; w != nil {
		g.wire = nil
		g.retireWire(w)
	}
	if force && !g.forced {
		g.forced = true
		close(g.force)
	}
	g.mu.Unlock()
	if g.source != nil {
		g.source.Close() // requests that wait for the plugin go to the next generation
	}
}

// retireWire gives every exchange of w the moment at which it is to end, and starts the goroutine that sees to
// it. The caller holds g.mu.
func (g *Generation) retireWire(w *wire) {
	now := time.Now()
	w.retired = true
	for x := range w.live {
		x.due = x.endsAt(now)
	}
	g.wg.Go(func() { g.drain(w) })
}

// withhold returns err, or a substitute if its text holds a credential of the generation.
func (g *Generation) withhold(err error) error {
	secrets := g.secrets
	g.mu.Lock()
	cred := g.cred
	g.mu.Unlock()
	if cred != nil {
		secrets = addSecret(slices.Clip(secrets), cred.Token.Reveal())
	}
	return withhold(err, secrets)
}
