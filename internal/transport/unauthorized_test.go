package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/execplugin"
)

// guarded answers 401 to every token but the valid ones.
type guarded struct {
	mu    sync.Mutex
	valid map[string]bool
	got   []string // "status method token body"
}

func (g *guarded) accept(tokens ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.valid = map[string]bool{}
	for _, t := range tokens {
		g.valid[t] = true
	}
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	g.mu.Lock()
	defer g.mu.Unlock()
	status := http.StatusUnauthorized
	if g.valid[token] {
		status = http.StatusOK
	}
	g.got = append(g.got, fmt.Sprintf("%d %s %s %s", status, r.Method, token, b))
	w.WriteHeader(status)
}

// post sends a body that can be sent again, or not.
func post(t *testing.T, rt http.RoundTripper, again bool) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, member+"/api/v1/namespaces", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if !again {
		r.GetBody = nil
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestOnUnauthorizedIsToldAtALimitedRate(t *testing.T) {
	h := &guarded{}
	s := newServer(t, h)
	var told atomic.Int64
	var last atomic.Pointer[Generation]
	o := Options{UnauthorizedInterval: time.Hour, OnUnauthorized: func(g *Generation) {
		told.Add(1)
		last.Store(g)
	}}
	tr := newTransport(t, s.spec("a"), o)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if code := post(t, tr, true); code != http.StatusUnauthorized {
				t.Errorf("got %d", code)
			}
		})
	}
	wg.Wait()
	if n := told.Load(); n != 1 || last.Load() != tr.Current() {
		t.Errorf("told %d times", n)
	}
	if len(h.got) != 20 {
		t.Errorf("%d requests for 20: a static token was sent again", len(h.got))
	}
	tr.Swap(mustGeneration(t, s.spec("b"), o))
	post(t, tr, true)
	if n := told.Load(); n != 2 || last.Load() != tr.Current() {
		t.Errorf("told %d times after a swap to another refused token", n)
	}
	r := get(t, "/api")
	r.Header.Set("Authorization", "Bearer own")
	if resp, err := tr.RoundTrip(r); err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	if n := told.Load(); n != 2 {
		t.Error("told of a credential that was the caller's own")
	}
}

// TestSwapWhileARefusalIsOnItsWay: the request left with the old token, which was revoked, and meanwhile there is a new one.
func TestSwapWhileARefusalIsOnItsWay(t *testing.T) {
	var tr *Transport
	h := &guarded{valid: map[string]bool{"b": true}}
	var s *server
	var once sync.Once
	s = newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { tr.Swap(mustGeneration(t, s.spec("b"), Options{})) })
		h.ServeHTTP(w, r)
	}))
	tr = newTransport(t, s.spec("a"), Options{})
	if code := post(t, tr, true); code != http.StatusOK {
		t.Errorf("got %d: %q", code, h.got)
	}
	if got, want := strings.Join(h.got, "; "), "401 POST a body; 200 POST b body"; got != want {
		t.Errorf("the server got %q, want %q", got, want)
	}
}

// pluginFile returns a plugin (a small shell script) that prints the token in a file, and the func that writes it.
func pluginFile(t *testing.T) (*connection.Exec, func(token string)) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	script := filepath.Join(dir, "plugin")
	text := `#!/bin/sh
read -r token <"$1"
echo run >>"$1.runs"
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'"$token"'"}}'
`
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	set := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &connection.Exec{
		Command: "/bin/sh", Args: []connection.Secret{connection.NewSecret(script), connection.NewSecret(file)},
		APIVersion: "client.authentication.k8s.io/v1",
	}, set
}

func newRunner(t *testing.T) *execplugin.Runner {
	t.Helper()
	r := execplugin.NewRunner(execplugin.Options{})
	t.Cleanup(func() {
		if err := r.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return r
}

func TestPluginIsAskedAgainAfterARefusal(t *testing.T) {
	h := &guarded{}
	s := newServer(t, h)
	plugin, set := pluginFile(t)
	var told atomic.Int64
	o := Options{Exec: newRunner(t), OnUnauthorized: func(*Generation) { told.Add(1) }}
	spec := s.spec("")
	spec.Auth.Exec = plugin
	tr := newTransport(t, spec, o)

	set("one")
	h.accept("one")
	if code := post(t, tr, true); code != http.StatusOK {
		t.Fatalf("got %d: %q", code, h.got)
	}
	set("two")
	h.accept("two") // "one" is revoked; the plugin never said when it ends
	if code := post(t, tr, true); code != http.StatusOK {
		t.Errorf("got %d: %q", code, h.got)
	}
	if got, want := strings.Join(h.got, "; "), "200 POST one body; 401 POST one body; 200 POST two body"; got != want {
		t.Errorf("the server got %q, want %q", got, want)
	}
	if n := told.Load(); n != 0 {
		t.Errorf("told %d times of what was mended", n)
	}
	h.accept()
	if code := post(t, tr, true); code != http.StatusUnauthorized {
		t.Errorf("got %d", code)
	}
	if n := told.Load(); n != 1 {
		t.Errorf("told %d times of what could not be mended", n)
	}
}

func TestBodyThatCannotBeSentAgain(t *testing.T) {
	h := &guarded{}
	s := newServer(t, h)
	plugin, set := pluginFile(t)
	spec := s.spec("")
	spec.Auth.Exec = plugin
	var told atomic.Int64
	tr := newTransport(t, spec, Options{Exec: newRunner(t), OnUnauthorized: func(*Generation) { told.Add(1) }})
	set("one")
	h.accept("one")
	post(t, tr, false)
	set("two")
	h.accept("two")
	if code := post(t, tr, false); code != http.StatusUnauthorized {
		t.Errorf("got %d", code)
	}
	if n := told.Load(); n != 0 {
		t.Errorf("told %d times of what the plugin has mended", n)
	}
	if code := post(t, tr, false); code != http.StatusOK { // it has the new token nevertheless
		t.Errorf("got %d: %q", code, h.got)
	}
}

func TestPluginThatFails(t *testing.T) {
	s := newServer(t, &guarded{})
	spec := s.spec("")
	spec.Auth.Exec = &connection.Exec{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1",
		Args: []connection.Secret{connection.NewSecret("-c"), connection.NewSecret("echo " + marker + " >&2; exit 1")}}
	tr := newTransport(t, spec, Options{Exec: newRunner(t)})
	_, err := tr.RoundTrip(get(t, "/api"))
	var ce *CredentialError
	var pe *execplugin.Error
	if !errors.As(err, &ce) || !errors.As(err, &pe) || pe.Reason != execplugin.ReasonExit {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, pe), marker) {
		t.Errorf("the error shows what the plugin wrote: %v", err)
	}
}

// TestPluginWithAnotherCertificate: a new certificate is used for new connections, and watches move to them.
func TestPluginWithAnotherCertificate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	refused := ""
	s := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if c := r.TLS.PeerCertificates; len(c) > 0 {
			name = c[0].Subject.CommonName
		}
		mu.Lock()
		bad := name == refused
		mu.Unlock()
		if bad {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, name)
		if r.URL.Query().Get("watch") != "" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	dir := t.TempDir()
	file := filepath.Join(dir, "credential")
	write := func(name string) {
		cert, key := s.ca.issue(t, name)
		q := func(b []byte) string { return strings.ReplaceAll(string(b), "\n", `\n`) }
		text := fmt.Sprintf(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"clientCertificateData":"%s","clientKeyData":"%s"}}`, q(cert), q(key))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec := s.spec("")
	spec.Auth.Exec = &connection.Exec{Command: "cat", APIVersion: "client.authentication.k8s.io/v1", Args: []connection.Secret{connection.NewSecret(file)}}
	tr := newTransport(t, spec, Options{Exec: newRunner(t), Stagger: time.Millisecond})
	write("one")
	if got := mustGet(t, tr, "/api"); got != "one\n" {
		t.Fatalf("got %q", got)
	}
	w := ending(watch(t, tr, watchPath, "one"))
	write("two")
	mu.Lock()
	refused = "one"
	mu.Unlock()
	if got := mustGet(t, tr, "/api"); got != "two\n" {
		t.Errorf("got %q", got)
	}
	if err := within(t, time.Minute, "the watch to end", w); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	eventually(t, "the old connection to be closed", func() bool { return s.conns.Load() == 1 })
	c, err := tr.Current().PlainConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.CertData) == 0 || len(c.KeyData) == 0 {
		t.Error("the plain configuration lacks the plugin's certificate")
	}
}

// TestRefusalBehindTheServer: a 401 from what the API server is a proxy for is the caller's to judge, and nothing is sent twice.
func TestRefusalBehindTheServer(t *testing.T) {
	h := &guarded{}
	s := newServer(t, h)
	plugin, set := pluginFile(t)
	set("one")
	spec := s.spec("")
	spec.Auth.Exec = plugin
	var told atomic.Int64
	tr := newTransport(t, spec, Options{Exec: newRunner(t), OnUnauthorized: func(*Generation) { told.Add(1) }})
	for i, path := range []string{
		"/api/v1/namespaces/n/services/x:80/proxy/login", "/api/v1/namespaces/n/pods/x/proxy", "/api/v1/nodes/x/proxy/metrics",
	} {
		r := get(t, path)
		r.Method = http.MethodPost
		for _, rt := range []http.RoundTripper{tr, tr.Current()} {
			set(fmt.Sprint("another", i))
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if _ = resp.Body.Close(); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: got %d", path, resp.StatusCode)
			}
		}
	}
	if len(h.got) != 6 || told.Load() != 0 {
		t.Errorf("6 requests were sent as %q, told %d times", h.got, told.Load())
	}
}
