package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/connection"
)

// shout upgrades a connection and sends back every line in capitals.
func shout(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.Header.Get("Upgrade") == "" {
		http.Error(w, "no upgrade over "+r.Proto, http.StatusBadRequest)
		return
	}
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s\n", r.Header.Get("Upgrade"), r.Header.Get("Authorization"))
	for rw.Flush() == nil {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = rw.WriteString(strings.ToUpper(line))
	}
}

// TestUpgrade leaves HTTP by either protocol that Kubernetes uses, on a server that also speaks HTTP/2, and goes on through a swap.
func TestUpgrade(t *testing.T) {
	s := newServer(t, http.HandlerFunc(shout))
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		t.Run(protocol, func(t *testing.T) {
			o := Options{Deadlines: Deadlines{Start: 5 * time.Second}}
			tr := newTransport(t, s.spec("a"), o)
			r := get(t, "/api/v1/namespaces/n/pods/p/exec?command=sh")
			r.Method = http.MethodPost
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", protocol)
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusSwitchingProtocols {
				b, _ := io.ReadAll(resp.Body)
				t.Fatalf("%s: %s", resp.Status, b)
			}
			body, ok := resp.Body.(io.ReadWriteCloser)
			if !ok {
				t.Fatalf("the body of the answer, %T, cannot be written to", resp.Body)
			}
			in := bufio.NewReader(body)
			say := func(line, want string) {
				t.Helper()
				if line != "" {
					if _, err := io.WriteString(body, line); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := in.ReadString('\n'); err != nil || got != want {
					t.Fatalf("got %q, %v, want %q", got, err, want)
				}
			}
			say("", "Bearer a\n")
			say("hello\n", "HELLO\n")
			tr.Swap(mustGeneration(t, s.spec("b"), o))
			say("still there?\n", "STILL THERE?\n")
			if err := tr.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := in.ReadString('\n'); err == nil {
				t.Error("the session goes on after Close")
			}
			_ = body.Close()
		})
	}
}

// TestUpgradeWithAPlainConfig upgrades as client-go's executors for exec and port-forward do: they take a configuration's TLS settings
// and wrappers, and dial for themselves.
func TestUpgradeWithAPlainConfig(t *testing.T) {
	s := newServer(t, http.HandlerFunc(shout))
	config, err := PlainConfig(s.spec("tok"))
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Transport{TLSClientConfig: tlsConfig, Proxy: config.Proxy}
	defer own.CloseIdleConnections()
	rt, err := rest.HTTPWrappersForConfig(config, own)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/api/v1/namespaces/n/pods/p/portforward", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "Bearer tok\n" {
		t.Errorf("got %s, %q, %v", resp.Status, line, err)
	}
}

func TestPlainConfig(t *testing.T) {
	s := newServer(t, http.HandlerFunc(echo))
	host := strings.TrimPrefix(s.URL, "https://")
	cert, key := newAuthority(t, "client CA").issue(t, "me")
	secret := connection.NewSecret
	for name, tc := range map[string]struct {
		change func(*connection.Spec)
		want   string
	}{
		"token": {func(s *connection.Spec) { s.Auth.Token = secret("tok") }, "GET " + host + " /api\nAuthorization: Bearer tok\n"},
		"token and basic auth": {func(s *connection.Spec) {
			s.Auth.Token, s.Auth.Username, s.Auth.Password = secret("tok"), "u", secret("p")
		},
			"GET " + host + " /api\nAuthorization: Bearer tok\n"},
		"basic auth": {func(s *connection.Spec) { s.Auth.Username, s.Auth.Password = "u", secret("p") }, "GET " + host + " /api\nAuthorization: Basic dTpw\n"},
		"certificate": {func(s *connection.Spec) {
			s.Auth.ClientCertificateData, s.Auth.ClientKeyData = cert, secret(string(key))
		},
			"GET " + host + " /api\ncertificate: me\n"},
		"insecure with a CA": {func(s *connection.Spec) { s.Endpoint.InsecureSkipTLSVerify = true }, "GET " + host + " /api\n"},
		"path":               {func(s *connection.Spec) { s.Endpoint.Server += "/c1" }, "GET " + host + " /c1/api\n"},
		"impersonation": {func(s *connection.Spec) {
			s.Auth.Impersonate = connection.Impersonation{UserName: "jane", Groups: []string{"a", "b"}, Extra: map[string][]string{"x/y": {"v"}}}
		}, "GET " + host + " /api\nImpersonate-Extra-X%2fy: v\nImpersonate-Group: a, b\nImpersonate-User: jane\n"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := connection.Spec{Endpoint: connection.Endpoint{Server: s.URL, CAData: s.ca.pem}}
			tc.change(&spec)
			config, err := PlainConfig(spec)
			if err != nil {
				t.Fatal(err)
			}
			config.UserAgent = "ua"
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			// The same through a generation: both say the same to the server.
			g := mustGeneration(t, spec, Options{UserAgent: "ua"})
			defer g.Close()
			if got := mustGet(t, g, "/api"); got != strings.Replace(tc.want, "certificate", "User-Agent: ua\ncertificate", 1) && got != tc.want+"User-Agent: ua\n" {
				t.Errorf("through a generation the server got:\n%s", got)
			}
			resp, err := client.Get(config.Host + "/api")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Replace(string(b), "User-Agent: ua\n", "", 1); got != tc.want {
				t.Errorf("the server got:\n%swant:\n%s", got, tc.want)
			}
		})
	}
	spec := s.spec("")
	spec.Auth.Exec = &connection.Exec{Command: "plugin"}
	if _, err := PlainConfig(spec); err == nil {
		t.Error("a plugin was put into a plain configuration")
	}
}

// TestProxies reaches a server through each kind of proxy, with a credential for the proxy, over both kinds of connections.
func TestProxies(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // never used
	s := newServer(t, http.HandlerFunc(echo))
	plain := newConnectProxy(t, nil)
	secure := newConnectProxy(t, s.ca)
	socks := newSOCKSProxy(t)
	for name, tc := range map[string]struct {
		proxy connection.Proxy
		used  func() int
	}{
		"none":   {connection.Proxy{}, nil},
		"http":   {connection.Proxy{URL: "http://" + plain.addr}, plain.count},
		"https":  {connection.Proxy{URL: "https://" + secure.addr}, secure.count},
		"socks5": {connection.Proxy{URL: "socks5://" + socks.addr}, socks.count},
	} {
		t.Run(name, func(t *testing.T) {
			spec := s.spec("tok")
			spec.Endpoint.TLSServerName = "server.internal" // a proxy must not be asked for this name
			spec.Endpoint.Proxy = tc.proxy
			if tc.used != nil {
				spec.Endpoint.Proxy.Username, spec.Endpoint.Proxy.Password = "u", connection.NewSecret("p:/w@")
			}
			tr := newTransport(t, spec, Options{})
			if got := mustGet(t, tr, "/api"); !strings.Contains(got, "Bearer tok") {
				t.Errorf("got %q", got)
			}
			if tc.used != nil && tc.used() == 0 {
				t.Error("the proxy was not used")
			}
			spec.Endpoint.Proxy.Password = connection.NewSecret(marker)
			if tc.used == nil {
				return
			}
			wrong := newTransport(t, spec, Options{})
			_, err := wrong.RoundTrip(get(t, "/api"))
			if err == nil || strings.Contains(err.Error(), marker) {
				t.Errorf("with a wrong credential: %v", err)
			}
		})
	}
}

// tunnel is a proxy of a test that wants the user u with the password p:/w@.
type tunnel struct {
	addr string
	used chan struct{}
}

func (p *tunnel) count() int { return len(p.used) }

func splice(a net.Conn, ar io.Reader, b net.Conn) {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(b, ar)
		_ = b.Close()
		close(done)
	}()
	_, _ = io.Copy(a, b)
	_ = a.Close()
	<-done
}

// newConnectProxy returns an HTTP proxy, with TLS if there is an authority for it.
func newConnectProxy(t *testing.T, ca *authority) *tunnel {
	p := &tunnel{used: make(chan struct{}, 100)}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Proxy-Authorization")
		if r.Method != http.MethodConnect || auth != "Basic dTpwOi93QA==" {
			// The status text repeats the credential, as a spiteful proxy might.
			conn, _, _ := w.(http.Hijacker).Hijack()
			fmt.Fprintf(conn, "HTTP/1.1 407 %s %s\r\n\r\n", auth, marker)
			_ = conn.Close()
			return
		}
		upstream, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		p.used <- struct{}{}
		splice(conn, rw, upstream)
	})
	s := newProxyServer(t, h, ca)
	p.addr = s
	return p
}

// newSOCKSProxy returns a SOCKS5 proxy (RFC 1928, RFC 1929).
func newSOCKSProxy(t *testing.T) *tunnel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tunnel{addr: l.Addr().String(), used: make(chan struct{}, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer stop()
				p.serveSOCKS(c)
			}()
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		<-stopped
	})
	return p
}

func (p *tunnel) serveSOCKS(c net.Conn) {
	r := bufio.NewReader(c)
	next := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return make([]byte, n)
		}
		return b
	}
	next(int(next(2)[1])) // version, methods
	_, _ = c.Write([]byte{5, 2})
	user := string(next(int(next(2)[1])))
	password := string(next(int(next(1)[0])))
	if user != "u" || password != "p:/w@" {
		_, _ = c.Write([]byte{1, 1})
		return
	}
	_, _ = c.Write([]byte{1, 0})
	if head := next(4); head[3] != 1 { // an IPv4 address
		return
	}
	ip, port := net.IP(next(4)), next(2)
	upstream, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: ip, Port: int(port[0])<<8 | int(port[1])})
	if err != nil {
		return
	}
	p.used <- struct{}{}
	_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	splice(c, r, upstream)
}
