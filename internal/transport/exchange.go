package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tributary-fleet/tributary/internal/execplugin"
)

// Reasons for which an exchange is ended by this package rather than by its peer or its caller.
const (
	endNot      uint32 = iota
	endDeadline        // the deadline of its kind
	endRetired         // its generation is no longer in force
	endClosed          // the transport was closed
)

// Reflectors (client-go v0.36) list anew after a watch that ended within a second without an event. The second counts from the
// watch's request or, for a watch-list, from when the initial events have been stored, which takes longer the more there are.
const (
	minWatchAge     = 1250 * time.Millisecond
	minWatchListAge = 2 * time.Second
)

// initialEventsTimeout is how long a watch-list that is still in its initial events may go on over an old generation: cut
// short, a large one would begin anew.
const initialEventsTimeout = 5 * time.Minute

// exchange is a request and its answer, from being sent until the answer's body has been read or closed. It is the
// body that the caller gets.
type exchange struct {
	gen    *Generation
	kind   kind
	caller context.Context
	cancel context.CancelFunc
	timer  *time.Timer   // ends the exchange at its deadline; nil: none
	unhook func() bool   // for the open-ended: stops waiting for the caller's context
	after  time.Duration // the deadline of the kind, for the error

	// out and url are the request as it is sent; here, because one allocation is better than three.
	out http.Request
	url url.URL

	ended atomic.Uint32 // why it was ended by us
	over  atomic.Bool   // no longer registered

	cred *execplugin.Credential // of the plugin, that it is sent with; nil: none

	body    io.ReadCloser
	initial *initialEvents // for a watch-list whose initial events are not all through yet

	// The generation's mu guards these.
	wire  *wire
	open  bool      // the answer's header has arrived
	since time.Time // when it did, or when the initial events were through
	due   time.Time // once the wire is retired: when to end
}

// send sends one request over the generation, to be answered until then, if that is not zero. It also returns the plugin's credential
// that was used, if any.
//
// The error is a notSentError if nothing of the request has been used yet. Otherwise its body is closed, as it is to be.
func (g *Generation) send(r *http.Request, k kind, until time.Time) (*http.Response, *execplugin.Credential, error) {
	ctx, cancel := context.WithCancel(r.Context())
	x := &exchange{gen: g, kind: k, caller: r.Context(), cancel: cancel}
	x.startTimer(g.opts.Deadlines.of(k), until)

	notSent := func(err error) error {
		x.finish()
		return notSentError{err}
	}
	cred, err := g.credential(ctx)
	switch {
	case errors.Is(err, execplugin.ErrClosed): // by a swap
		return nil, nil, notSent(ErrClosed)
	case err != nil:
		return nil, nil, notSent(x.failed(&CredentialError{err}))
	}
	w, auth, err := g.begin(x, cred)
	if errors.Is(err, errEnded) {
		err = x.failed(context.Canceled)
	}
	if err != nil {
		return nil, nil, notSent(err)
	}
	if err := x.rewrite(ctx, r, auth); err != nil {
		return nil, nil, notSent(err)
	}
	resp, err := w.transport(k).RoundTrip(&x.out)
	if err != nil {
		err = x.failed(err)
		x.finish()
		return nil, x.cred, err
	}
	resp.Request = r // not ours: it holds the credential
	x.body = resp.Body
	if !x.opened(r, resp) {
		_ = resp.Body.Close()
		err = x.failed(context.Canceled)
		x.finish()
		return nil, x.cred, err
	}
	resp.Body = x
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if rw, ok := x.body.(io.ReadWriteCloser); ok {
			resp.Body = &upgraded{exchange: x, Writer: rw}
		}
	}
	return resp, x.cred, nil
}

// notSentError says why a request was not sent. Nothing of it has been used, so that it can be sent over another generation, and its
// body is not closed.
type notSentError struct{ error }

// errEnded is returned by begin for an exchange that was ended before it began; failed says why, which begin cannot
// call, since it holds the generation's mu.
var errEnded = errors.New("transport: ended before it began")

// credential returns the plugin's credential, or nil if there is no plugin.
func (g *Generation) credential(ctx context.Context) (*execplugin.Credential, error) {
	if g.source == nil {
		return nil, nil
	}
	return g.source.Credential(ctx)
}

// begin registers the exchange with the wire that fits the credential, and returns the Authorization header to send.
func (g *Generation) begin(x *exchange, cred *execplugin.Credential) (*wire, []string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		return nil, nil, ErrClosed
	}
	if x.ended.Load() != endNot { // while it waited for the credential
		return nil, nil, errEnded
	}
	certificate := g.static
	if cred != nil {
		switch {
		case g.cred != nil && cred.Before(g.cred):
			cred = g.cred // another request has overtaken this one with a newer credential: never back
		case cred != g.cred:
			g.cred, g.auth = cred, bearer(cred.Token)
		}
		x.cred = cred
		if c := cred.Certificate(); c != nil {
			certificate = c
		}
	}
	if g.wire != nil && !sameCertificate(g.wire.certificate, certificate) {
		g.retireWire(g.wire)
		g.wire = nil
	}
	if g.wire == nil {
		g.wire = newWire(g.endpoint, certificate, g.opts)
	}
	x.wire = g.wire
	x.wire.live[x] = struct{}{}
	return x.wire, g.auth, nil
}

// rewrite makes x.out of r: to the generation's endpoint, with its credential, under ctx. r is not touched. The error is errDotSegment.
func (x *exchange) rewrite(ctx context.Context, r *http.Request, auth []string) error {
	g := x.gen
	x.out, x.url = *r.WithContext(ctx), *r.URL
	x.url.Scheme, x.url.Host, x.url.User = g.endpoint.scheme, g.endpoint.host, nil
	if err := g.endpoint.addPrefix(&x.url); err != nil {
		return err
	}
	x.out.URL, x.out.Host = &x.url, ""
	x.out.Header = g.header(r.Header, auth)
	return nil
}

// startTimer arms the deadline, which was d long when the request began and ends at until; a negative d is none. Where the caller's own is earlier, that ends the exchange without us; but the registry
// has to learn of it even if the caller forgets to close the body, so the timer then fires a moment later.
func (x *exchange) startTimer(d time.Duration, until time.Time) {
	x.after = d
	if d >= 0 {
		d = max(time.Until(until), 0)
	}
	if end, ok := x.caller.Deadline(); ok && !x.kind.openEnded() {
		if left := time.Until(end) + time.Second; d < 0 || left < d {
			d = left
		}
	}
	if d >= 0 {
		x.timer = time.AfterFunc(d, x.expire)
	}
}

func (x *exchange) expire() {
	if x.markEnded(endDeadline) {
		x.cancel()
	}
	x.gen.mu.Lock()
	open := x.open
	x.gen.mu.Unlock()
	if open {
		x.finish()
	}
}

// markEnded notes why the exchange is about to be ended, and reports whether it had not been before.
func (x *exchange) markEnded(reason uint32) bool { return x.ended.CompareAndSwap(endNot, reason) }

// opened notes that the answer's header has arrived, and reports whether the exchange goes on.
func (x *exchange) opened(r *http.Request, resp *http.Response) bool {
	if x.kind.openEnded() && x.timer != nil {
		x.timer.Stop()
	}
	now := time.Now()
	x.gen.mu.Lock()
	defer x.gen.mu.Unlock()
	if x.ended.Load() != endNot {
		return false
	}
	x.open, x.since = true, now
	if x.kind == kindWatch && resp.StatusCode == http.StatusOK && boolParameter(r.URL.RawQuery, "sendInitialEvents") {
		x.initial = &initialEvents{}
	}
	if x.kind.openEnded() {
		// The request's own context, not the caller's: a child of one that is not of package context costs a goroutine.
		x.unhook = context.AfterFunc(x.out.Context(), x.finish)
	}
	return true
}

// endsAt is when the exchange is to end if its wire is retired now. The caller holds the generation's mu.
func (x *exchange) endsAt(now time.Time) time.Time {
	o := &x.gen.opts
	switch {
	case x.kind == kindSession || x.kind == kindUpgrade:
		return now.Add(o.SessionDrainTimeout)
	case x.kind == kindList: // its own deadline ends it, if it has one
		return now.Add(max(o.DrainTimeout, o.Deadlines.List))
	case x.initial != nil:
		return now.Add(max(o.DrainTimeout, initialEventsTimeout))
	case x.kind != kindWatch:
		return now.Add(o.DrainTimeout)
	case !x.open:
		return now // it will be opened again on the next generation
	}
	due := now.Add(rand.N(o.Stagger + 1))
	if ripe := x.since.Add(minWatchAge); due.Before(ripe) {
		return ripe
	}
	return due
}

// failed turns an error of the exchange into the one to return.
func (x *exchange) failed(err error) error {
	if x.caller.Err() == nil {
		switch x.ended.Load() {
		case endDeadline:
			return &TimeoutError{Kind: x.kind.String(), After: x.after}
		case endRetired:
			return ErrRetired
		case endClosed:
			return ErrClosed
		}
	}
	return x.gen.withhold(err)
}

// finish takes the exchange out of the registry and frees what it holds. It may be called several times and
// from any goroutine.
func (x *exchange) finish() {
	if x.over.Swap(true) {
		return
	}
	x.cancel()
	if x.timer != nil {
		x.timer.Stop()
	}
	x.gen.mu.Lock()
	unhook := x.unhook
	w := x.wire
	wake := false
	if w != nil {
		delete(w.live, x)
		wake = w.retired && len(w.live) == 0
	}
	x.gen.mu.Unlock()
	if unhook != nil {
		unhook()
	}
	if wake {
		w.wake()
	}
}

// Read reads the answer's body. A watch that is ended by a swap ends with io.EOF, as if the server had ended it.
// So does one whose connection is lost: to whoever watches both mean the same, that it is to go on from where it was.
// But client-go takes some of the errors of a lost connection (an HTTP/2 connection whose ping is not answered, for one) as a reason to list anew.
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	if x.initial != nil && n > 0 && x.initial.through(p[:n]) {
		x.settled()
	}
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		if x.kind == kindWatch && x.caller.Err() == nil {
			err = io.EOF
		} else {
			err = x.failed(err)
		}
	}
	x.finish()
	return n, err
}

// Close closes the answer's body. What is left of it is not read.
func (x *exchange) Close() error {
	err := x.body.Close()
	x.finish()
	return err
}

// settled notes that the initial events of a watch-list are through, so that it is an ordinary watch from now on.
func (x *exchange) settled() {
	now := time.Now()
	x.gen.mu.Lock()
	x.initial = nil
	x.since = now.Add(minWatchListAge - minWatchAge)
	w := x.wire
	if w.retired {
		x.due = x.endsAt(now)
	}
	retired := w.retired
	x.gen.mu.Unlock()
	if retired {
		w.wake()
	}
}

// upgraded is the body of an answer 101, which is the connection itself and can be written to.
type upgraded struct {
	*exchange
	io.Writer
}

// initialEvents looks for the bookmark that ends the initial events of a watch-list, in any encoding: the key of its annotation
// (KEP-3157) is plain text in JSON, protobuf and CBOR.
type initialEvents struct {
	tail []byte // the end of what was read so far, where the key may have begun
}

var initialEventsEnd = []byte("k8s.io/initial-events-end")

// through reports whether the bookmark has come with this chunk.
func (i *initialEvents) through(chunk []byte) bool {
	if bytes.Contains(chunk, initialEventsEnd) {
		return true
	}
	keep := len(initialEventsEnd) - 1
	seam := append(i.tail, chunk[:min(len(chunk), keep)]...)
	if bytes.Contains(seam, initialEventsEnd) {
		return true
	}
	if len(chunk) >= keep {
		seam = chunk[len(chunk)-keep:]
	} else if len(seam) > keep {
		seam = seam[len(seam)-keep:]
	}
	i.tail = append(i.tail[:0:0], seam...)
	return false
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
