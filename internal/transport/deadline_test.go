package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// slow answers with a header at once, or never, and never with a body's end.
func slow(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("header") != "" {
		_, _ = io.WriteString(w, "beginning")
		_ = http.NewResponseController(w).Flush()
	}
	<-r.Context().Done()
}

func TestDeadlines(t *testing.T) {
	s := newServer(t, http.HandlerFunc(slow))
	o := Options{Deadlines: Deadlines{
		Discovery: 200 * time.Millisecond, Read: 210 * time.Millisecond, Write: 220 * time.Millisecond, List: 230 * time.Millisecond, Start: 240 * time.Millisecond,
	}}
	tr := newTransport(t, s.spec("t"), o)
	for _, tc := range []struct{ method, path, kind string }{
		{"GET", "/readyz?x", "discovery"},
		{"GET", "/api/v1/namespaces/a?x", "read"},
		{"PUT", "/api/v1/namespaces/a?x", "write"},
		{"GET", "/api/v1/namespaces?x", "list"},
		{"GET", "/api/v1/namespaces?watch=true", "watch"},
		{"GET", "/api/v1/namespaces/a/pods/p/log?follow=true", "session"},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			check := func(err error) {
				t.Helper()
				var te *TimeoutError
				if !errors.As(err, &te) || te.Kind != tc.kind || !te.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			}
			r := get(t, tc.path)
			r.Method = tc.method
			_, err := tr.RoundTrip(r)
			check(err)

			r = get(t, tc.path+"&header=1")
			r.Method = tc.method
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			end := ending(resp.Body)
			if openEnded := tc.kind == "watch" || tc.kind == "session"; openEnded {
				select {
				case err := <-end:
					t.Errorf("it ended after its header had arrived: %v", err)
				case <-time.After(300 * time.Millisecond): // longer than every deadline
				}
				_ = resp.Body.Close()
				<-end
				return
			}
			check(within(t, time.Minute, "the deadline", end))
			_ = resp.Body.Close()
		})
	}
}

// TestForgottenBodies: callers that never read or close an answer leak nothing beyond its deadline, or their context.
func TestForgottenBodies(t *testing.T) {
	s := newServer(t, http.HandlerFunc(slow))
	tr := newTransport(t, s.spec("t"), Options{Deadlines: Deadlines{Read: 300 * time.Millisecond}})
	ctx, cancel := context.WithCancel(t.Context())
	for range 50 {
		for _, path := range []string{"/api/v1/namespaces/a?header=1", watchPath + "&header=1"} {
			resp, err := tr.RoundTrip(get(t, path).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp // and that was it
		}
	}
	g := tr.Current()
	registered := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.wire.live)
	}
	eventually(t, "the reads to be forgotten", func() bool { return registered() == 50 })
	cancel()
	eventually(t, "the watches to be forgotten", func() bool { return registered() == 0 })
}

func TestCallersDeadlineIsItsOwn(t *testing.T) {
	s := newServer(t, http.HandlerFunc(slow))
	tr := newTransport(t, s.spec("t"), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := tr.RoundTrip(get(t, "/api/v1/namespaces/a").WithContext(ctx))
	var te *TimeoutError
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &te) {
		t.Errorf("got %v", err)
	}
}

// TestHalfOpenConnection: a server that is gone without a word is noticed by its missing answer to a ping.
func TestHalfOpenConnection(t *testing.T) {
	f := newFleet(t)
	var frozen frozenDialer
	o := Options{Dial: frozen.dial, PingInterval: 50 * time.Millisecond, PingTimeout: 50 * time.Millisecond}
	tr := newTransport(t, f.spec("t"), o)
	w := ending(watch(t, tr, watchPath, "GET t"))
	frozen.freeze()
	if err := within(t, time.Minute, "the watch to end", w); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	// The next request goes over a new connection.
	if got := mustGet(t, tr, "/api"); got != "GET t\n" {
		t.Errorf("got %q", got)
	}
}

func TestHalfOpenConnectionsDieWithinAMinute(t *testing.T) {
	o := Options{}.withDefaults()
	if d := o.PingInterval + o.PingTimeout; d >= time.Minute {
		t.Errorf("a half-open HTTP/2 connection lives %v", d)
	}
}

// frozenDialer makes connections whose peers can be made to vanish: what is written is swallowed, and nothing is read anymore.
type frozenDialer struct{ conns []*frozenConn }

type frozenConn struct {
	net.Conn
	frozen chan struct{}
	closed chan struct{}
}

func (d *frozenDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	fc := &frozenConn{Conn: c, frozen: make(chan struct{}), closed: make(chan struct{})}
	d.conns = append(d.conns, fc) // one request at a time in these tests
	return fc, nil
}

func (d *frozenDialer) freeze() {
	for _, c := range d.conns {
		close(c.frozen)
	}
}

func (c *frozenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *frozenConn) Write(p []byte) (int, error) {
	select {
	case <-c.frozen:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *frozenConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}

// TestDeadlineBeforeTheRequestBegan: the deadline passes, and the caller leaves, before the exchange is registered. That fails the request and
// leaves no lock held, so that a swap goes through.
func TestDeadlineBeforeTheRequestBegan(t *testing.T) {
	s := newServer(t, http.HandlerFunc(echo))
	o := Options{Deadlines: Deadlines{Read: time.Nanosecond}}
	tr := newTransport(t, s.spec("a"), o)
	gone, leave := context.WithCancel(t.Context())
	leave()
	r := get(t, "/api/v1/namespaces/x").WithContext(gone)
	done := make(chan error, 1)
	go func() {
		for range 20_000 {
			if resp, err := tr.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
				done <- errors.New("a request whose caller had left was answered")
				return
			}
		}
		tr.Swap(mustGeneration(t, s.spec("b"), o))
		done <- nil
	}()
	if err := within(t, time.Minute, "the requests to fail and the swap to go through", done); err != nil {
		t.Error(err)
	}
}
