package transport

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/connection"
)

const marker = "marker-of-a-credential"

func TestUnusableSpecs(t *testing.T) {
	ca := newAuthority(t, "CA")
	cert, key := ca.issue(t, "client")
	_, otherKey := ca.issue(t, "other")
	secret := connection.NewSecret
	for name, tc := range map[string]struct {
		change func(*connection.Spec)
		field  string
	}{
		"no server":            {func(s *connection.Spec) { s.Endpoint.Server = "" }, "Endpoint.Server"},
		"no scheme":            {func(s *connection.Spec) { s.Endpoint.Server = marker + ":6443" }, "Endpoint.Server"},
		"another scheme":       {func(s *connection.Spec) { s.Endpoint.Server = "ftp://" + marker }, "Endpoint.Server"},
		"no URL":               {func(s *connection.Spec) { s.Endpoint.Server = "https://" + marker + ":x" }, "Endpoint.Server"},
		"user information":     {func(s *connection.Spec) { s.Endpoint.Server = "https://u:" + marker + "@host" }, "Endpoint.Server"},
		"a query":              {func(s *connection.Spec) { s.Endpoint.Server = "https://host?token=" + marker }, "Endpoint.Server"},
		"a dot segment":        {func(s *connection.Spec) { s.Endpoint.Server = "https://host/a/../" + marker }, "Endpoint.Server"},
		"one that is escaped":  {func(s *connection.Spec) { s.Endpoint.Server = "https://host/a/%2e%2E%2f" + marker }, "Endpoint.Server"},
		"no PEM CA":            {func(s *connection.Spec) { s.Endpoint.CAData = []byte(marker) }, "Endpoint.CAData"},
		"a proxy without host": {func(s *connection.Spec) { s.Endpoint.Proxy.URL = marker }, "Endpoint.Proxy.URL"},
		"an unknown proxy":     {func(s *connection.Spec) { s.Endpoint.Proxy.URL = "gopher://" + marker }, "Endpoint.Proxy.URL"},
		"a proxy with user":    {func(s *connection.Spec) { s.Endpoint.Proxy.URL = "http://u:" + marker + "@proxy" }, "Endpoint.Proxy.URL"},
		"a key alone":          {func(s *connection.Spec) { s.Auth.ClientKeyData = secret(string(key)) }, "Auth.ClientCertificateData"},
		"a certificate alone":  {func(s *connection.Spec) { s.Auth.ClientCertificateData = cert }, "Auth.ClientKeyData"},
		"a wrong key": {func(s *connection.Spec) {
			s.Auth.ClientCertificateData, s.Auth.ClientKeyData = cert, secret(string(otherKey))
		}, "Auth.ClientCertificateData"},
		"a broken token":          {func(s *connection.Spec) { s.Auth.Token = secret(marker + "\n") }, "Auth.Token"},
		"impersonates no user":    {func(s *connection.Spec) { s.Auth.Impersonate.Groups = []string{marker} }, "Auth.Impersonate"},
		"impersonates a bad user": {func(s *connection.Spec) { s.Auth.Impersonate.UserName = marker + "\r\nX: y" }, "Auth.Impersonate"},
		"a plugin, none enabled":  {func(s *connection.Spec) { s.Auth = connection.Auth{Exec: &connection.Exec{Command: marker}} }, "Auth.Exec"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := connection.Spec{
				Endpoint: connection.Endpoint{Server: "https://host", CAData: ca.pem},
				Auth:     connection.Auth{Token: secret("t")},
			}
			tc.change(&spec)
			g, err := NewGeneration(spec, Options{})
			var se *SpecError
			if !errors.As(err, &se) {
				t.Fatalf("got %v, %v", g, err)
			}
			if se.Field != tc.field {
				t.Errorf("got field %s, want %s", se.Field, tc.field)
			}
			if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), marker) {
				t.Errorf("the error shows what was wrong: %v", err)
			}
		})
	}
}

// echo answers with the request as it arrived.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\n", r.Method, r.Host, r.URL.RequestURI())
	for _, k := range slices.Sorted(maps.Keys(r.Header)) {
		if k == "Authorization" || k == "User-Agent" || strings.HasPrefix(k, "Impersonate-") {
			fmt.Fprintf(w, "%s: %s\n", k, strings.Join(r.Header[k], ", "))
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		fmt.Fprintf(w, "certificate: %s\n", r.TLS.PeerCertificates[0].Subject.CommonName)
	}
}

func TestRequestsAsTheyArrive(t *testing.T) {
	s := newServer(t, http.HandlerFunc(echo))
	host := strings.TrimPrefix(s.URL, "https://")
	cert, key := newAuthority(t, "client CA").issue(t, "me")
	secret := connection.NewSecret
	for name, tc := range map[string]struct {
		spec   func(*connection.Spec)
		path   string
		header http.Header
		want   string
	}{
		"a token": {
			spec: func(s *connection.Spec) { s.Auth.Token = secret("tok") },
			path: "/api/v1/pods?limit=1", want: "GET " + host + " /api/v1/pods?limit=1\nAuthorization: Bearer tok\nUser-Agent: ua\n",
		},
		"a token wins over basic auth": {
			spec: func(s *connection.Spec) {
				s.Auth.Token, s.Auth.Username, s.Auth.Password = secret("tok"), "u", secret("p")
			},
			path: "/api", want: "GET " + host + " /api\nAuthorization: Bearer tok\nUser-Agent: ua\n",
		},
		"a token wins over a plugin": {
			spec: func(s *connection.Spec) {
				s.Auth.Token, s.Auth.Exec = secret("tok"), &connection.Exec{Command: "no-such-plugin"}
			},
			path: "/api", want: "GET " + host + " /api\nAuthorization: Bearer tok\nUser-Agent: ua\n",
		},
		"basic auth": {
			spec: func(s *connection.Spec) { s.Auth.Username, s.Auth.Password = "u", secret("p") },
			path: "/api", want: "GET " + host + " /api\nAuthorization: Basic dTpw\nUser-Agent: ua\n",
		},
		"a client certificate": {
			spec: func(s *connection.Spec) {
				s.Auth.ClientCertificateData, s.Auth.ClientKeyData = cert, secret(string(key))
			},
			path: "/api", want: "GET " + host + " /api\nUser-Agent: ua\ncertificate: me\n",
		},
		"a request's own headers": {
			spec:   func(s *connection.Spec) { s.Auth.Token, s.Auth.Impersonate.UserName = secret("tok"), "other" },
			path:   "/api",
			header: http.Header{"Authorization": {"Bearer own"}, "User-Agent": {"mine"}, "Impersonate-User": {"own"}},
			want:   "GET " + host + " /api\nAuthorization: Bearer own\nImpersonate-User: own\nUser-Agent: mine\n",
		},
		"empty headers of the request": {
			spec:   func(s *connection.Spec) { s.Auth.Token, s.Auth.Impersonate.UserName = secret("tok"), "jane" },
			path:   "/api",
			header: http.Header{"Authorization": {""}, "Impersonate-User": {""}, "Impersonate-Group": {"system:masters"}},
			want:   "GET " + host + " /api\nAuthorization: Bearer tok\nImpersonate-User: jane\nUser-Agent: ua\n",
		},
		"impersonation": {
			spec: func(s *connection.Spec) {
				s.Auth.Token = secret("tok")
				s.Auth.Impersonate = connection.Impersonation{
					UserName: "jane", UID: "1", Groups: []string{"a", "b"}, Extra: map[string][]string{"example.org/Scope%": {"x", "y"}},
				}
			},
			path: "/api",
			want: "GET " + host + " /api\nAuthorization: Bearer tok\nImpersonate-Extra-Example.org%2fscope%25: x, y\nImpersonate-Group: a, b\n" +
				"Impersonate-Uid: 1\nImpersonate-User: jane\nUser-Agent: ua\n",
		},
		"a path before the API": {
			spec: func(s *connection.Spec) { s.Endpoint.Server += "/cluster1/" },
			path: "/api/v1/namespaces/a", want: "GET " + host + " /cluster1/api/v1/namespaces/a\nUser-Agent: ua\n",
		},
		"escaped paths": {
			spec: func(s *connection.Spec) { s.Endpoint.Server += "/a%2Fb/c" },
			path: "/api/v1/x/y%2Fz", want: "GET " + host + " /a%2Fb/c/api/v1/x/y%2Fz\nUser-Agent: ua\n",
		},
		"an escaped request behind a plain path": {
			spec: func(s *connection.Spec) { s.Endpoint.Server += "/c" },
			path: "/y%2Fz", want: "GET " + host + " /c/y%2Fz\nUser-Agent: ua\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := connection.Spec{Endpoint: connection.Endpoint{Server: s.URL, CAData: s.ca.pem}}
			tc.spec(&spec)
			tr := newTransport(t, spec, Options{UserAgent: "ua"})
			r := get(t, tc.path)
			maps.Copy(r.Header, tc.header)
			before := r.Clone(r.Context())
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(b)); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if resp.Request != r {
				t.Error("the answer's Request is not the caller's: it holds the credential")
			}
			if r.URL.String() != before.URL.String() || r.Host != before.Host || cmp.Diff(before.Header, r.Header) != "" {
				t.Error("the caller's request was changed")
			}
			if resp.ProtoMajor != 2 {
				t.Errorf("spoke %s", resp.Proto)
			}
		})
	}
}

func TestImpersonatedExtraKeyIsCanonicalOnTheWire(t *testing.T) {
	// The API server lower-cases the key and unescapes it (its own tests: Impersonate-Extra-Example.com%2fproject).
	hs, err := parseImpersonation(connection.Impersonation{UserName: "u", Extra: map[string][]string{"a b/ü": {"v"}}})
	if err != nil {
		t.Fatal(err)
	}
	key := strings.ToLower(strings.TrimPrefix(hs[1].key, "Impersonate-Extra-"))
	if got, err := url.PathUnescape(key); err != nil || got != "a b/ü" {
		t.Errorf("%s comes out as %q, %v", hs[1].key, got, err)
	}
}

func TestErrorsThatHoldCredentialsAreWithheld(t *testing.T) {
	s := connection.Spec{
		Endpoint: connection.Endpoint{Server: "https://h", Proxy: connection.Proxy{URL: "http://p", Username: "u", Password: connection.NewSecret("pass/word")}},
		Auth:     connection.Auth{Token: connection.NewSecret("the-token")},
	}
	g := mustGeneration(t, s, Options{})
	defer g.Close()
	for _, text := range []string{"bad the-token", "Basic dTpwYXNzL3dvcmQ=", "http://u:pass%2Fword@p", "pass/word"} {
		err := g.withhold(fmt.Errorf("x: %w", errors.New(text)))
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), text) || errors.Unwrap(err) != nil {
			t.Errorf("%q got out: %v", text, err)
		}
	}
	plain := errors.New("connection refused")
	if err := g.withhold(plain); err != plain {
		t.Errorf("an innocent error became %v", err)
	}
}

// TestRequestsStayBelowThePrefix: no path of a request leads to the neighbours behind the same proxy.
func TestRequestsStayBelowThePrefix(t *testing.T) {
	s := newServer(t, http.HandlerFunc(echo))
	spec := s.spec("token")
	spec.Endpoint.Server += "/clusters/one"
	tr := newTransport(t, spec, Options{})
	for _, path := range []string{
		"/../two/api", "/api/v1/..", "/./api", "/api/%2e%2e/two", "/api/%2E./two", "/a%2f..%2f..%2ftwo", `/a%5c..%5c..%5ctwo`, "/api/%252e%252e/two",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, member+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := tr.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s was sent", path)
		} else if !errors.Is(err, errDotSegment) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/apis/x.io/v1/things/a..b", "/api/v1/namespaces/.../secrets/.x", "/api/v1/namespaces/a%2Fb%20c"} {
		want := "GET " + s.Listener.Addr().String() + " /clusters/one" + path + "\n"
		if got := mustGet(t, tr, path); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
