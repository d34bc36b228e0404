package faultproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// TLSOptions are the options of a TLSProxy.
type TLSOptions struct {
	// CAData are the PEM certificates that the target's certificate must descend from. Empty: the target is not verified.
	CAData []byte
	// ServerName is the name to ask the target for and to verify; default the host of its URL.
	ServerName string
	// ClientCertificate authenticates to the target where that wants one: a client's own ends at the proxy. Tokens pass through.
	ClientCertificate *tls.Certificate
	// Names are names that the serving certificate is valid for besides localhost, 127.0.0.1 and ::1.
	Names []string
	// Wrap, if not nil, is put around the forwarding handler, inside the counter: for answers of one's own.
	Wrap func(http.Handler) http.Handler
}

// TLSProxy ends TLS and forwards requests, one by one, to an API server. Its methods may be called concurrently.
type TLSProxy struct {
	// Counter counts the requests.
	Counter Counter

	addr    string
	names   []string
	server  *http.Server
	forward *http.Transport
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	serving atomic.Pointer[tls.Certificate]

	mu       sync.Mutex // guards what follows
	closed   bool
	ca       *authority
	conns    map[net.Conn]struct{}
	requests sync.WaitGroup // added to under mu while not closed
}

// StartTLS starts a TLSProxy to target, an https URL whose path is put before the requests', on a free port of 127.0.0.1.
func StartTLS(target string, options TLSOptions) (*TLSProxy, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("start TLS proxy: %w", err)
	}
	upstream := &tls.Config{ServerName: options.ServerName, InsecureSkipVerify: len(options.CAData) == 0} //nolint:gosec // said so in TLSOptions
	if len(options.CAData) > 0 {
		upstream.RootCAs = x509.NewCertPool()
		if !upstream.RootCAs.AppendCertsFromPEM(options.CAData) {
			return nil, errors.New("start TLS proxy: CAData holds no certificate")
		}
	}
	if options.ClientCertificate != nil {
		upstream.Certificates = []tls.Certificate{*options.ClientCertificate}
	}
	p := &TLSProxy{names: options.Names, conns: map[net.Conn]struct{}{}}
	p.forward = &http.Transport{TLSClientConfig: upstream, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, TLSHandshakeTimeout: dialTimeout}
	if err := p.RotateCA(); err != nil {
		return nil, fmt.Errorf("start TLS proxy: %w", err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start TLS proxy: %w", err)
	}
	p.addr = listener.Addr().String()

	silent := log.New(io.Discard, "", 0) // aborted requests are what this is for
	var handler http.Handler = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport:     p.forward,
		FlushInterval: -1,
		ErrorLog:      silent,
	}
	if options.Wrap != nil {
		handler = options.Wrap(handler)
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler:     p.await(p.Counter.Handler(handler)),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   p.track,
		ErrorLog:    silent,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.serving.Load(), nil },
			// A resumed session would hide a changed certificate.
			SessionTicketsDisabled: true,
		},
		ReadHeaderTimeout: time.Minute,
	}
	p.wg.Go(func() { _ = p.server.ServeTLS(listener, "", "") })
	return p, nil
}

// URL is the proxy's URL, https://127.0.0.1:port.
func (p *TLSProxy) URL() string { return "https://" + p.addr }

// Addr is where the proxy listens, "127.0.0.1:port".
func (p *TLSProxy) Addr() string { return p.addr }

// CAData is the PEM certificate of the authority in force.
func (p *TLSProxy) CAData() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ca.pem()
}

// RotateServing makes a new serving certificate of the same authority, for connections to come.
func (p *TLSProxy) RotateServing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cert, err := p.ca.serving(p.names)
	if err != nil {
		return err
	}
	p.serving.Store(cert)
	return nil
}

// RotateCA makes a new authority and a serving certificate of it, for connections to come.
func (p *TLSProxy) RotateCA() error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.ca = ca
	p.mu.Unlock()
	return p.RotateServing()
}

// CloseConnections closes the connections that clients have, watches and all.
func (p *TLSProxy) CloseConnections() {
	p.mu.Lock()
	conns := make([]net.Conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// Close ends the proxy and all its requests, and waits until they have ended.
func (p *TLSProxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_ = p.server.Close()
	p.CloseConnections()
	p.wg.Wait()
	p.requests.Wait()
	p.forward.CloseIdleConnections()
}

// await makes Close wait for requests, which http.Server's does not.
func (p *TLSProxy) await(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		p.requests.Add(1)
		p.mu.Unlock()
		defer p.requests.Done()
		next.ServeHTTP(w, r)
	})
}

func (p *TLSProxy) track(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	}
}
