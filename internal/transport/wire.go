package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// wire is a set of pooled connections that were all made with one client certificate. A generation has one at a
// time; a plugin that returns another certificate makes it begin a new one, since a pooled connection
// keeps the certificate of its handshake for as long as it lives.
type wire struct {
	certificate *tls.Certificate
	ordinary    http.RoundTripper // HTTP/2 where the server speaks it
	upgrades    http.RoundTripper // HTTP/1.1 alone: HTTP/2 cannot be left by Connection: Upgrade
	closeIdle   func()
	conns       *connections

	// The generation's mu guards these.
	live    map[*exchange]struct{} // every exchange that is not over
	retired bool

	// poke wakes the drain when live has become empty or a moment in it has changed. Capacity 1.
	poke chan struct{}
}

func newWire(e endpoint, certificate *tls.Certificate, o Options) *wire {
	w := &wire{
		certificate: certificate,
		conns:       &connections{dial: o.Dial, open: make(map[net.Conn]struct{})},
		live:        make(map[*exchange]struct{}),
		poke:        make(chan struct{}, 1),
	}
	// Two fresh ones: an HTTP/2 transport must not be cloned.
	ordinary, upgrades := w.newTransport(e, o), w.newTransport(e, o)
	ordinary.ForceAttemptHTTP2 = true
	ordinary.HTTP2 = &http.HTTP2Config{SendPingTimeout: o.PingInterval, PingTimeout: o.PingTimeout}
	upgrades.Protocols = new(http.Protocols)
	upgrades.Protocols.SetHTTP1(true)
	w.ordinary, w.upgrades = ordinary, upgrades
	w.closeIdle = func() {
		ordinary.CloseIdleConnections()
		upgrades.CloseIdleConnections()
	}
	return w
}

func (w *wire) newTransport(e endpoint, o Options) *http.Transport {
	return &http.Transport{
		// Not left nil where there is none: nil is "not decided", and would be filled in from the environment by whoever
		// applies defaults.
		Proxy:                  func(*http.Request) (*url.URL, error) { return e.proxy, nil },
		OnProxyConnectResponse: checkConnect,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := w.connect(ctx, network, address, o.DialTimeout)
			if err != nil || e.proxyTLS == nil {
				return conn, err
			}
			return handshake(ctx, conn, e.proxyTLS, o.TLSHandshakeTimeout)
		},
		TLSClientConfig:        e.tlsConfig(w.certificate),
		TLSHandshakeTimeout:    o.TLSHandshakeTimeout,
		IdleConnTimeout:        o.IdleTimeout,
		MaxIdleConnsPerHost:    25, // as client-go has it: HTTP/1.1 clients would reconnect all the time with net/http's 2
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     e.disableCompression,
	}
}

func (w *wire) connect(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return w.conns.dialContext(ctx, network, address)
}

// handshake begins TLS with an https proxy.
func handshake(ctx context.Context, conn net.Conn, c *tls.Config, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	secure := tls.Client(conn, c)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with the proxy: %w", err)
	}
	return secure, nil
}

// transport returns the connections that fit the kind of a request.
func (w *wire) transport(k kind) http.RoundTripper {
	if k == kindUpgrade {
		return w.upgrades
	}
	return w.ordinary
}

// wake tells the drain, if there is one, to look again. It never blocks.
func (w *wire) wake() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// shut closes every connection, whatever it is doing, and lets no new one be made.
func (w *wire) shut() {
	w.closeIdle()
	w.conns.close()
}

// checkConnect replaces net/http's error for a refused CONNECT, whose text is the proxy's.
func checkConnect(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("transport: the proxy answered CONNECT with status %d", resp.StatusCode)
	}
	return nil
}

var errShut = errors.New("transport: dial: connections of an ended generation")

// connections are the network connections of a wire. net/http closes idle connections when asked, but an HTTP/2
// connection whose last stream ends later stays pooled until its idle timeout; so they are known here, and closed.
type connections struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex // guards what follows; not held while dialling or closing
	open map[net.Conn]struct{}
	shut bool
}

func (c *connections) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, of: c}
	c.mu.Lock()
	shut := c.shut
	if !shut {
		c.open[tracked] = struct{}{}
	}
	c.mu.Unlock()
	if shut {
		_ = conn.Close()
		return nil, errShut
	}
	return tracked, nil
}

func (c *connections) close() {
	c.mu.Lock()
	c.shut = true
	open := c.open
	c.open = nil
	c.mu.Unlock()
	for conn := range open {
		_ = conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	of *connections
}

func (c *trackedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// drain ends the exchanges of a retired wire when their moments come, and closes its connections after the last.
func (g *Generation) drain(w *wire) {
	defer w.shut()
	force := g.force
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ended, next, left := g.expired(w, force == nil)
		for _, x := range ended {
			x.cancel()
		}
		if left == 0 {
			return
		}
		if force == nil {
			w.conns.close() // whoever is inside RoundTrip still has been told why
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-w.poke:
		case <-force:
			force = nil // from now on everything is over
		}
	}
}

// expired marks the exchanges whose moment has come as ended, and returns them, the next moment, and how many
// exchanges are left.
func (g *Generation) expired(w *wire, force bool) (ended []*exchange, next time.Time, left int) {
	now := time.Now()
	reason := endRetired
	if force {
		reason = endClosed
	}
	next = now.Add(time.Hour)
	g.mu.Lock()
	defer g.mu.Unlock()
	for x := range w.live {
		if !force && x.due.After(now) {
			if x.due.Before(next) {
				next = x.due
			}
			continue
		}
		if x.markEnded(reason) {
			ended = append(ended, x)
		}
		if x.open {
			delete(w.live, x) // the rest is the caller's; one still inside RoundTrip is waited for
		}
	}
	return ended, next, len(w.live)
}
