package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/execplugin"
)

// TestSwapAwayFromAHangingPlugin: what waits for the plugin goes to the next generation.
func TestSwapAwayFromAHangingPlugin(t *testing.T) {
	f := newFleet(t)
	started := filepath.Join(t.TempDir(), "started")
	spec := f.spec("")
	spec.Auth.Exec = &connection.Exec{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1",
		Args: []connection.Secret{connection.NewSecret("-c"), connection.NewSecret(": >'" + started + "'; sleep 60")}}
	tr := newTransport(t, spec, Options{Exec: newRunner(t)})
	body := make(chan string, 1)
	go func() {
		resp, err := tr.RoundTrip(get(t, "/api"))
		if err != nil {
			body <- err.Error()
			return
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		body <- string(b)
	}()
	eventually(t, "the plugin to run", func() bool { _, err := os.Stat(started); return err == nil })
	tr.Swap(mustGeneration(t, f.spec("static"), Options{}))
	if got := <-body; got != "GET static\n" {
		t.Errorf("got %q", got)
	}
}

// onDone is a context that calls a func when a request under it begins, after its generation has been chosen.
type onDone struct {
	context.Context
	call func()
}

func (c onDone) Done() <-chan struct{} {
	c.call()
	return c.Context.Done()
}

// TestReplacedPluginFails: the failure of a plugin is nobody's business once its generation has been replaced, and nothing of the request
// has been used: not even a body that cannot be sent again.
func TestReplacedPluginFails(t *testing.T) {
	f := newFleet(t)
	spec := f.spec("")
	spec.Auth.Exec = &connection.Exec{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1",
		Args: []connection.Secret{connection.NewSecret("-c"), connection.NewSecret("exit 1")}}
	tr := newTransport(t, spec, Options{Exec: newRunner(t)})
	old := tr.Current()
	// As Swap does, up to the moment before it closes the source of the old one.
	flip := sync.OnceFunc(func() { tr.current.Store(mustGeneration(t, f.spec("static"), Options{})) })
	ctx := onDone{t.Context(), flip}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, member+"/api/v1/namespaces", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil
	resp, err := tr.RoundTrip(r)
	old.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if got, want := string(b), "POST staticbody\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHangingPluginAfterARefusal: the request does not wait for the plugin longer than it may take itself.
func TestHangingPluginAfterARefusal(t *testing.T) {
	t.Parallel()
	s := newServer(t, &guarded{})
	once := filepath.Join(t.TempDir(), "once")
	spec := s.spec("")
	spec.Auth.Exec = &connection.Exec{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1",
		Args: []connection.Secret{connection.NewSecret("-c"), connection.NewSecret("test -e '" + once + `' && sleep 60; : >'` + once + `'
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'`)}}
	tr := newTransport(t, spec, Options{Exec: newRunner(t), Deadlines: Deadlines{Write: 2 * time.Second}})
	begin := time.Now()
	if code := post(t, tr, true); code != http.StatusUnauthorized {
		t.Errorf("got %d", code)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("waited %v", took)
	}
}

// hangsFromTheSecondRun returns a plugin that returns a token once and hangs afterwards, and whether it does.
func hangsFromTheSecondRun(t *testing.T, token string) (*connection.Exec, func() bool) {
	t.Helper()
	once := filepath.Join(t.TempDir(), "once")
	script := "test -e '" + once + "' && : >'" + once + "2' && sleep 60; : >'" + once + `'
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"` + token + `"}}'`
	return &connection.Exec{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1",
			Args: []connection.Secret{connection.NewSecret("-c"), connection.NewSecret(script)}},
		func() bool { _, err := os.Stat(once + "2"); return err == nil }
}

// TestSwapWhileThePluginIsAskedAgain: the old token was refused, and its plugin hangs. The request does not fail for that.
func TestSwapWhileThePluginIsAskedAgain(t *testing.T) {
	h := &guarded{valid: map[string]bool{"static": true}}
	s := newServer(t, h)
	spec := s.spec("")
	plugin, hangs := hangsFromTheSecondRun(t, "old")
	spec.Auth.Exec = plugin
	var told atomic.Int64
	o := Options{Exec: newRunner(t), OnUnauthorized: func(*Generation) { told.Add(1) }}
	tr := newTransport(t, spec, o)
	code := make(chan int, 1)
	go func() { code <- post(t, tr, true) }()
	eventually(t, "the plugin to run again", hangs)
	tr.Swap(mustGeneration(t, s.spec("static"), o))
	if got := <-code; got != http.StatusOK {
		t.Errorf("got %d: %q", got, h.got)
	}
	if n := told.Load(); n != 0 {
		t.Errorf("told %d times", n)
	}
}

// TestOvertakenCredential: a request that comes late with the credential that was current when it began neither uses it nor brings it
// back for others.
func TestOvertakenCredential(t *testing.T) {
	plugin, set := pluginFile(t)
	spec := newServer(t, &guarded{}).spec("")
	spec.Auth.Exec = plugin
	g := mustGeneration(t, spec, Options{Exec: newRunner(t)})
	defer g.Close()
	set("one")
	one, err := g.source.Credential(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set("two")
	two, err := g.source.Refresh(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	for _, cred := range []*execplugin.Credential{two, one, two} {
		x := &exchange{gen: g, kind: kindRead, caller: t.Context(), cancel: func() {}}
		_, auth, err := g.begin(x, cred)
		if err != nil {
			t.Fatal(err)
		}
		if x.cred != two || auth[0] != "Bearer two" || g.cred != two {
			t.Errorf("sent with %q", auth)
		}
		x.finish()
	}
}

// TestOneDeadline: what a request has used of its time counts when it is sent again.
func TestOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGeneration(t, connection.Spec{Endpoint: connection.Endpoint{Server: "https://host"}, Auth: connection.Auth{Token: connection.NewSecret("token")}}, Options{})
		g.wire = newWire(g.endpoint, nil, g.opts)
		g.wire.ordinary = roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		began := time.Now()
		until := g.until(kindRead)
		time.Sleep(20 * time.Second) // until the 401, and the plugin
		var te *TimeoutError
		if _, _, err := g.send(get(t, "/api/v1/namespaces/a"), kindRead, until); !errors.As(err, &te) || te.After != 30*time.Second {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("it took %v in all", took)
		}
		g.Close()
	})
}
