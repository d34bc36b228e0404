package transport

import (
	"context"
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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// The tests of this file run a cluster.Cluster with informers on three kinds and 1,000 objects over a real kube-apiserver,
// and rotate everything that can be rotated under it, while it is written to.

const objects = 1000

// relists counts what a swap must never cause.
type relists struct {
	http.RoundTripper
	lists, watchLists, watches atomic.Int64
}

func (c *relists) RoundTrip(r *http.Request) (*http.Response, error) {
	switch classify(r) {
	case kindList:
		c.lists.Add(1)
	case kindWatch:
		if boolParameter(r.URL.RawQuery, "sendInitialEvents") {
			c.watchLists.Add(1)
		} else {
			c.watches.Add(1)
		}
	}
	return c.RoundTripper.RoundTrip(r)
}

// running is a cluster.Cluster over a transport, and what its ConfigMap informer has seen.
type running struct {
	tr      *Transport
	count   *relists
	cluster cluster.Cluster

	mu   sync.Mutex
	seen map[string]int // events by name
}

var fill sync.Once

func start(t *testing.T, plane *controlplane.ControlPlane, spec connection.Spec) *running {
	t.Helper()
	fill.Do(func() { createObjects(t, plane) })
	tr := New(mustGeneration(t, spec, Options{}), Options{})
	m := &running{tr: tr, count: &relists{RoundTripper: tr}, seen: map[string]int{}}
	config := tr.RESTConfig(member)
	config.Transport = m.count
	var err error
	if m.cluster, err = cluster.New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- m.cluster.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := tr.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, obj := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Namespace{}} {
		informer, err := m.cluster.GetCache().GetInformer(ctx, obj)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := obj.(*corev1.ConfigMap); ok {
			if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: m.event}); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "the initial events", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.seen) >= objects })
	m.count.lists.Store(0)
	m.count.watchLists.Store(0)
	m.count.watches.Store(0)
	return m
}

func (m *running) event(obj any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[obj.(*corev1.ConfigMap).Name]++
}

func createObjects(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	k := kubernetes.NewForConfigOrDie(plane.Config())
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := range objects / 10 {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d-%d", w, i)}}
				if _, err := k.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// rotate swaps n times to what next returns, while objects are created all the time, and checks every promise.
// check is told who the API server says that new requests come from.
func (m *running) rotate(t *testing.T, n int, next func(i int) connection.Spec, check func(i int, who authenticationv1.UserInfo), after func(i int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := make(chan []string, 1)
	go func() { written <- m.write(ctx, t) }()

	var slowest time.Duration
	for i := range n {
		g := mustGeneration(t, next(i), Options{})
		mustGet(t, g, "/readyz") // proved
		old := m.tr.Current()
		flipped := time.Now()
		m.tr.Swap(g)
		who := &authenticationv1.SelfSubjectReview{}
		if err := m.cluster.GetClient().Create(ctx, who); err != nil {
			t.Fatalf("rotation %d: %v", i, err)
		}
		check(i, who.Status.UserInfo)
		after(i)
		old.wg.Wait() // until the last watch has moved and the last connection is closed
		slowest = max(slowest, time.Since(flipped))
	}
	cancel()
	names := <-written
	eventually(t, "the last events", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, name := range names {
			if m.seen[name] == 0 {
				return false
			}
		}
		return true
	})
	m.mu.Lock()
	for _, name := range names {
		if m.seen[name] != 1 {
			t.Errorf("%s was seen %d times", name, m.seen[name])
		}
	}
	m.mu.Unlock()
	if lists, watchLists := m.count.lists.Load(), m.count.watchLists.Load(); lists+watchLists != 0 {
		t.Errorf("%d LISTs and %d WATCHes with initial events after the first sync", lists, watchLists)
	}
	// A watch that waits to be opened while the next flip comes skips a generation, so it is not their number that counts.
	eventually(t, "the three watches to be open over the last generation", func() bool { return openWatches(m.tr.Current()) == 3 })
	if slowest > 5*time.Second {
		t.Errorf("a generation took %v to go", slowest)
	}
	t.Logf("%d rotations: %d objects written and seen, %d watches opened, 0 relists; the slowest generation was gone %v after its flip",
		n, len(names), m.count.watches.Load(), slowest.Round(time.Millisecond))
}

// openWatches counts the watches that are open over a generation.
func openWatches(g *Generation) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wire == nil {
		return 0
	}
	for x := range g.wire.live {
		if x.kind == kindWatch && x.open {
			n++
		}
	}
	return n
}

// write creates objects through the cluster until ctx ends, and returns their names. None may fail.
func (m *running) write(ctx context.Context, t *testing.T) (names []string) {
	run := time.Now().UnixNano()
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("w-%d-%d", run, i)
		err := m.cluster.GetClient().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		switch {
		case err == nil:
			names = append(names, name)
		case ctx.Err() == nil:
			t.Errorf("a write failed: %v", err)
			return names
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return names
}

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

func TestTokenRotation(t *testing.T) {
	p := plane(t)
	user, err := p.NewUser(t.Context(), "rotating", controlplane.Everything()...)
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
	first := specOf(current.Credential)
	m := start(t, p, first)
	var fresh *controlplane.Token
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
			current = fresh
		})
	// The first token was used last more than the server's 10 s of memory ago.
	g := mustGeneration(t, first, Options{})
	defer g.Close()
	eventually(t, "the first token to be refused", func() bool {
		resp, err := g.RoundTrip(get(t, "/api/v1/namespaces/default"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	})
}

func TestClientCertificateRotation(t *testing.T) {
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
	p := plane(t)
	user, err := p.NewUser(t.Context(), "behind-a-proxy", controlplane.Everything()...)
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
	p := plane(t)
	user, err := p.NewUser(t.Context(), "moving", controlplane.Everything()...)
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
