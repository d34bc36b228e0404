package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

// authority is a certificate authority of a test.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert: cert, key: key}
}

// issue returns a certificate and its key, for a server at 127.0.0.1 and the given DNS names, or for the client named name.
func (a *authority) issue(t testing.TB, name string, dns ...string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: dns,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (a *authority) pair(t testing.TB, name string, dns ...string) tls.Certificate {
	t.Helper()
	p, err := tls.X509KeyPair(a.issue(t, name, dns...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// server is an API server of a test: HTTP/2 and TLS, with a certificate of its authority.
type server struct {
	*httptest.Server
	ca          *authority
	certificate atomic.Pointer[tls.Certificate] // for new connections
	conns       atomic.Int64                    // open connections
}

func newServer(t testing.TB, h http.Handler) *server {
	t.Helper()
	s := &server{ca: newAuthority(t, "server CA"), Server: httptest.NewUnstartedServer(h)}
	c := s.ca.pair(t, "server", "server.internal")
	s.certificate.Store(&c)
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{*s.certificate.Load()},
			ClientAuth:   tls.RequestClientCert,
			NextProtos:   []string{"h2", "http/1.1"},
		}, nil
	}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	var mu sync.Mutex
	open := make(map[net.Conn]bool)
	s.Config.ConnState = func(c net.Conn, st http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch st {
		case http.StateNew:
			open[c] = true
		case http.StateClosed, http.StateHijacked:
			delete(open, c)
		}
		s.conns.Store(int64(len(open)))
	}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// spec returns a connection to the server with a token.
func (s *server) spec(token string) connection.Spec {
	return connection.Spec{
		Endpoint: connection.Endpoint{Server: s.URL, CAData: s.ca.pem},
		Auth:     connection.Auth{Token: connection.NewSecret(token)},
	}
}

func mustGeneration(t testing.TB, spec connection.Spec, o Options) *Generation {
	t.Helper()
	g, err := NewGeneration(spec, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// newTransport returns a transport over spec that is closed at the end of the test.
func newTransport(t testing.TB, spec connection.Spec, o Options) *Transport {
	t.Helper()
	tr := New(mustGeneration(t, spec, o), o)
	t.Cleanup(func() {
		if err := tr.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return tr
}

const member = "https://a.member.invalid"

func get(t testing.TB, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, member+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustGet gets a path and returns the body.
func mustGet(t testing.TB, rt http.RoundTripper, path string) string {
	t.Helper()
	resp, err := rt.RoundTrip(get(t, path))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s: %s", path, resp.Status, b)
	}
	return string(b)
}

// eventually polls for something that another goroutine or the kernel does.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// newProxyServer serves h over HTTP/1.1, with TLS if there is an authority, and returns its address.
func newProxyServer(t testing.TB, h http.Handler, ca *authority) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if ca != nil {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.pair(t, "proxy")}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
