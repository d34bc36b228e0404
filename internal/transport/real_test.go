package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// The tests of this file run a cluster.Cluster with informers on three kinds and 1,000 objects over a real kube-apiserver,
// and rotate everything that can be rotated under it, while it is written to.

func specOf(c *controlplane.Credential) connection.Spec {
	config := c.Config()
	return connection.Spec{
		Endpoint: connection.Endpoint{Server: config.Host, CAData: config.CAData},
		Auth: connection.Auth{
			Token: connection.NewSecret(config.BearerToken), ClientCertificateData: config.CertData, ClientKeyData: connection.NewSecret(string(config.KeyData)),
		},
	}
}

func plane(t *testing.T) *controlplane.ControlPlane {
	return planes.Get(t, controlplane.Options{Name: "member"})
}

// unique returns a name that no earlier run of a test has used on the same server.
func unique(name string) string { return fmt.Sprintf("%s-%x", name, time.Now().UnixNano()) }

func TestTokenRotation(t *testing.T) {
	t.Parallel()
	p := plane(t)
	user, err := p.NewUser(t.Context(), unique("rotating"), controlplane.Everything()...)
	if err != nil {
		t.Fatal(err)
	}
	issue := func() *controlplane.Token {
		token, err := user.Issue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	current := issue()
	m := start(t, p, specOf(current.Credential))
	m.overlap = true
	var fresh *controlplane.Token
	var revoked []connection.Spec
	ids := map[string]bool{}
	m.rotate(t, 20,
		func(int) connection.Spec {
			fresh = issue()
			return specOf(fresh.Credential)
		},
		func(i int, who authenticationv1.UserInfo) {
			id := fmt.Sprint(who.Extra["authentication.kubernetes.io/credential-id"])
			if ids[id] {
				t.Errorf("rotation %d: requests still come with token %s", i, id)
			}
			ids[id] = true
		},
		func(int) {
			if err := current.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			revoked = append(revoked, specOf(current.Credential))
			current = fresh
		})
	for i, spec := range revoked { // the server remembers for 10 s that it has accepted one
		g := mustGeneration(t, spec, Options{})
		eventually(t, fmt.Sprintf("token %d to be refused", i), func() bool {
			resp, err := g.RoundTrip(get(t, "/api/v1/namespaces/default"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.StatusCode == http.StatusUnauthorized
		})
		g.Close()
	}
}

func TestClientCertificateRotation(t *testing.T) {
	t.Parallel()
	p := plane(t)
	certificate := func(i int) connection.Spec {
		c, err := p.ClientCertificate(fmt.Sprintf("jane-%d", i), "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		return specOf(c)
	}
	start(t, p, certificate(-1)).rotate(t, 5, certificate, func(i int, who authenticationv1.UserInfo) {
		if want := fmt.Sprintf("jane-%d", i); who.Username != want {
			t.Errorf("requests come from %s, want %s", who.Username, want)
		}
	}, func(int) {})
}

// front is a reverse proxy that ends TLS, with a certificate of its own that can be changed.
type front struct {
	*httptest.Server
	certificate atomic.Pointer[tls.Certificate]
}

func newFront(t *testing.T, p *controlplane.ControlPlane, prefix string) *front {
	t.Helper()
	target, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CAData())
	upstream := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     upstream,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	f := &front{Server: httptest.NewUnstartedServer(http.StripPrefix(prefix, proxy))}
	f.Config.ErrorLog = proxy.ErrorLog
	f.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*f.certificate.Load()}, NextProtos: []string{"h2", "http/1.1"}}, nil
	}}
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
		upstream.CloseIdleConnections()
	})
	return f
}

func TestAuthorityRotation(t *testing.T) {
	t.Parallel()
	p := plane(t)
	user, err := p.NewUser(t.Context(), unique("behind-a-proxy"), controlplane.Everything()...)
	if err != nil {
		t.Fatal(err)
	}
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := newFront(t, p, "")
	renew := func(i int) connection.Spec {
		ca := newAuthority(t, fmt.Sprintf("CA %d", i))
		c := ca.pair(t, "front")
		f.certificate.Store(&c) // from now on new connections get this certificate
		spec := specOf(token.Credential)
		spec.Endpoint = connection.Endpoint{Server: f.URL, CAData: ca.pem}
		return spec
	}
	first := renew(-1)
	start(t, p, first).rotate(t, 5, renew, func(_ int, who authenticationv1.UserInfo) {
		if who.Username != user.Name() {
			t.Errorf("requests come from %s", who.Username)
		}
	}, func(int) {})
	g := mustGeneration(t, first, Options{})
	defer g.Close()
	_, err = g.RoundTrip(get(t, "/readyz"))
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("with the first authority: %v", err)
	}
}

func TestEndpointRotation(t *testing.T) {
	t.Parallel()
	p := plane(t)
	user, err := p.NewUser(t.Context(), unique("moving"), controlplane.Everything()...)
	if err != nil {
		t.Fatal(err)
	}
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ca := newAuthority(t, "front CA")
	c := ca.pair(t, "front")
	fronts := []*front{newFront(t, p, ""), newFront(t, p, "/clusters/one")}
	var specs []connection.Spec
	for i, prefix := range []string{"", "/clusters/one"} {
		fronts[i].certificate.Store(&c)
		spec := specOf(token.Credential)
		spec.Endpoint = connection.Endpoint{Server: fronts[i].URL + prefix, CAData: ca.pem}
		specs = append(specs, spec)
	}
	direct := specOf(token.Credential)
	specs = append(specs, direct)
	start(t, p, direct).rotate(t, 6, func(i int) connection.Spec { return specs[i%3] }, func(_ int, who authenticationv1.UserInfo) {
		if who.Username != user.Name() {
			t.Errorf("requests come from %s", who.Username)
		}
	}, func(int) {})
}
