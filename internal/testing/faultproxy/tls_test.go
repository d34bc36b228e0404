package faultproxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// apiServer answers with the Authorization header it got; watches get one line and hang.
func apiServer(t *testing.T) (url string, ca []byte) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("Authorization")+"\n")
		if r.URL.Query().Get("watch") != "" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func startTLS(t *testing.T, options TLSOptions) *TLSProxy {
	t.Helper()
	url, ca := apiServer(t)
	options.CAData = ca
	p, err := StartTLS(url+"/prefix", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func client(t *testing.T, ca []byte) *http.Client {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string, authorization string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return c.Do(r)
}

func mustGet(t *testing.T, c *http.Client, url, authorization string) string {
	t.Helper()
	resp, err := get(t, c, url, authorization)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Requests and tokens pass, events are not held back, and everything is counted by what it means to a cache.
func TestTLSProxyForwardsAndCounts(t *testing.T) {
	p := startTLS(t, TLSOptions{})
	c := client(t, p.CAData())
	if got := mustGet(t, c, p.URL()+"/api/v1/pods", "Bearer t"); got != "/prefix/api/v1/pods Bearer t\n" {
		t.Errorf("got %q", got)
	}
	mustGet(t, c, p.URL()+"/api/v1/namespaces/a/pods", "")
	mustGet(t, c, p.URL()+"/api/v1/namespaces/a/pods/b", "Bearer t")
	for _, query := range []string{"watch=true&resourceVersion=1", "watch=1&sendInitialEvents=true"} {
		resp, err := get(t, c, p.URL()+"/apis/apps/v1/deployments?"+query, "Bearer t")
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Errorf("the watch's first event: %q, %v", line, err)
		}
		_ = resp.Body.Close()
	}
	want := map[Request]int{
		{List, "GET", "/api/v1/pods", 200}:                   1,
		{List, "GET", "/api/v1/namespaces/a/pods", 401}:      1,
		{Other, "GET", "/api/v1/namespaces/a/pods/b", 200}:   1,
		{Watch, "GET", "/apis/apps/v1/deployments", 200}:     1,
		{WatchList, "GET", "/apis/apps/v1/deployments", 200}: 1,
	}
	if diff := cmp.Diff(want, p.Counter.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := p.Counter.Relists(); got != 2 {
		t.Errorf("relists = %d, want 2", got)
	}
	if got := p.Counter.Count(WithPath("pods"), WithStatus(401), WithVerb(List)); got != 1 {
		t.Errorf("refused lists of pods = %d, want 1", got)
	}
	p.Counter.Reset()
	if got := p.Counter.Count(); got != 0 {
		t.Errorf("requests after a reset = %d", got)
	}
}

func TestTLSProxyRotation(t *testing.T) {
	p := startTLS(t, TLSOptions{})
	old := p.CAData()
	c := client(t, old)
	if got := mustGet(t, c, p.URL()+"/version", "Bearer t"); got == "" {
		t.Error("no answer")
	}
	if err := p.RotateServing(); err != nil {
		t.Fatal(err)
	}
	p.CloseConnections()
	mustGet(t, client(t, old), p.URL()+"/version", "Bearer t")

	if err := p.RotateCA(); err != nil {
		t.Fatal(err)
	}
	mustGet(t, client(t, p.CAData()), p.URL()+"/version", "Bearer t")
	_, err := get(t, client(t, old), p.URL()+"/version", "Bearer t")
	if unknown := (x509.UnknownAuthorityError{}); !errors.As(err, &unknown) {
		t.Errorf("with the old authority: %v, want unknown authority", err)
	}
}

// Close ends open watches, and waits for them.
func TestTLSProxyClose(t *testing.T) {
	p := startTLS(t, TLSOptions{})
	resp, err := get(t, client(t, p.CAData()), p.URL()+"/api/v1/pods?watch=true", "Bearer t")
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ended in order, want an error")
	}
	_ = resp.Body.Close()
}

func TestClassify(t *testing.T) {
	for path, want := range map[string]Verb{
		"/api/v1/pods":                              List,
		"/clusters/c1/api/v1/pods":                  List,
		"/api/v1/namespaces":                        List,
		"/api/v1/namespaces/kube-system":            Other,
		"/api/v1/namespaces/a/pods":                 List,
		"/api/v1/namespaces/a/pods/p":               Other,
		"/api/v1/nodes/n/status":                    Other,
		"/apis/apps/v1/deployments":                 List,
		"/apis/apps/v1/namespaces/a/deployments":    List,
		"/apis/apps/v1/namespaces/a/deployments/d":  Other,
		"/apis/apps/v1":                             Other,
		"/apis":                                     Other,
		"/api":                                      Other,
		"/readyz":                                   Other,
		"/api/v1/namespaces/a/serviceaccounts/x/ab": Other,
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if got := classify(r.Method, r.URL).Verb; got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if r := httptest.NewRequest(http.MethodPost, "/api/v1/pods", nil); classify(r.Method, r.URL).Verb != Other {
		t.Error("a POST is taken for a list")
	}
}
