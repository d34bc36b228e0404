package execplugin

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/connection"
)

func TestRunReturnsWhatThePluginPrints(t *testing.T) {
	for _, version := range []string{"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"} {
		p := testPlugin(t, "token", "abc")
		p.APIVersion = version
		c, err := NewRunner(Options{}).Run(t.Context(), p, connection.Endpoint{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Token.Reveal() != "abc" || !c.Expiry.IsZero() || c.Certificate() != nil {
			t.Errorf("%s: got token %q, expiry %v", version, c.Token.Reveal(), c.Expiry)
		}
	}
}

// see runs the plugin that tells what it finds.
func see(t *testing.T, p connection.Exec, e connection.Endpoint) seen {
	t.Helper()
	c, err := NewRunner(Options{}).Run(t.Context(), p, e)
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(c.Token.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	var s seen
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPluginFindsLittle(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", marker)
	t.Setenv("HOME", "/home/of/the/hub")
	p := testPlugin(t, "see", "--flag", "value with spaces")
	p.Env = append(p.Env, connection.EnvVar{Name: "REGION", Value: connection.NewSecret("eu-1")})
	got := see(t, p, connection.Endpoint{Server: "https://not.for.the.plugin"})

	if diff := cmp.Diff([]string{"--flag", "value with spaces"}, got.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if want := fmt.Sprint("", error(nil)); got.Stdin != want {
		t.Errorf("stdin: got %q, want it empty", got.Stdin)
	}
	if want := `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false}}`; string(got.Info) != want {
		t.Errorf("KUBERNETES_EXEC_INFO:\ngot  %s\nwant %s", got.Info, want)
	}
	allowed := append(DefaultEnvironment(), "REGION", "GORACE", modeVariable, infoVariable)
	for _, v := range got.Env {
		name, value, _ := strings.Cut(v, "=")
		if !slices.Contains(allowed, name) {
			t.Errorf("the plugin has %s from this process", name)
		}
		if name == "HOME" && value != "/home/of/the/hub" {
			t.Errorf("HOME is %q", value)
		}
	}
	for _, name := range []string{"REGION", "HOME"} {
		if !slices.ContainsFunc(got.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			t.Errorf("the plugin has no %s", name)
		}
	}
}

func TestClusterInfoOnlyWhereAskedFor(t *testing.T) {
	p := testPlugin(t, "see")
	p.ProvideClusterInfo = true
	p.ClusterConfig = connection.NewSecret(`{"clusterName":"c1"}`)
	got := see(t, p, connection.Endpoint{
		Server: "https://c1.example:6443/path", CAData: []byte("CA"), TLSServerName: "c1",
		Proxy:              connection.Proxy{URL: "http://proxy:3128", Username: "u", Password: connection.NewSecret(marker)},
		DisableCompression: true,
	})
	want := `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://c1.example:6443/path",` +
		`"tls-server-name":"c1","certificate-authority-data":"Q0E=","proxy-url":"http://proxy:3128","disable-compression":true,` +
		`"config":{"clusterName":"c1"}},"interactive":false}}`
	if string(got.Info) != want {
		t.Errorf("KUBERNETES_EXEC_INFO:\ngot  %s\nwant %s", got.Info, want)
	}
}

// TestFailures runs plugins that fail in every way there is. No error shows what a plugin wrote, or what it was given.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "no-program")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	printing := func(out string) func(*connection.Exec) {
		return func(e *connection.Exec) { *e = testPlugin(t, "print", out) }
	}
	const ok = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"` + marker + `"}}`
	setting := func(name string) func(*connection.Exec) {
		return func(e *connection.Exec) {
			e.Env = append(e.Env, connection.EnvVar{Name: name, Value: connection.NewSecret(marker)})
		}
	}
	for name, tc := range map[string]struct {
		change func(*connection.Exec)
		want   Reason
	}{
		"exits with a code":      {func(e *connection.Exec) { *e = testPlugin(t, "fail", marker) }, ReasonExit},
		"floods stdout":          {func(e *connection.Exec) { *e = testPlugin(t, "chatty", "stdout") }, ReasonOutputTooLarge},
		"floods stderr":          {func(e *connection.Exec) { *e = testPlugin(t, "chatty", "stderr") }, ReasonOutputTooLarge},
		"does not exist":         {func(e *connection.Exec) { e.Command = filepath.Join(dir, "missing") }, ReasonNotFound},
		"is not in PATH":         {func(e *connection.Exec) { e.Command = "no-such-credential-plugin" }, ReasonNotFound},
		"is not executable":      {func(e *connection.Exec) { e.Command = plain }, ReasonNotFound},
		"has no command":         {func(e *connection.Exec) { e.Command = "" }, ReasonConfiguration},
		"has a relative path":    {func(e *connection.Exec) { e.Command = "./plugin" }, ReasonConfiguration},
		"has a path upwards":     {func(e *connection.Exec) { e.Command = "../bin/plugin" }, ReasonConfiguration},
		"has no version":         {func(e *connection.Exec) { e.APIVersion = "" }, ReasonConfiguration},
		"has an old version":     {func(e *connection.Exec) { e.APIVersion = "client.authentication.k8s.io/v1alpha1" }, ReasonConfiguration},
		"has a zero byte":        {func(e *connection.Exec) { e.Args = []connection.Secret{connection.NewSecret("a\x00" + marker)} }, ReasonConfiguration},
		"sets PATH":              {setting("PATH"), ReasonConfiguration},
		"sets Path":              {setting("Path"), ReasonConfiguration},
		"sets HOME":              {setting("HOME"), ReasonConfiguration},
		"sets LD_PRELOAD":        {setting("LD_PRELOAD"), ReasonConfiguration},
		"sets the request":       {setting("KUBERNETES_EXEC_INFO"), ReasonConfiguration},
		"sets the hub":           {setting("KUBERNETES_SERVICE_HOST"), ReasonConfiguration},
		"sets a nameless one":    {setting(""), ReasonConfiguration},
		"smuggles one in a name": {setting("A=b\x00PATH"), ReasonConfiguration},
		"has no JSON config": {func(e *connection.Exec) {
			e.ProvideClusterInfo, e.ClusterConfig = true, connection.NewSecret("{"+marker)
		}, ReasonConfiguration},
		"prints nothing":          {printing(""), ReasonOutput},
		"prints no JSON":          {printing(marker), ReasonOutput},
		"prints half of it":       {printing(ok[:len(ok)-1]), ReasonOutput},
		"prints two":              {printing(ok + ok), ReasonOutput},
		"prints another kind":     {printing(strings.Replace(ok, "ExecCredential", marker, 1)), ReasonOutput},
		"prints another version":  {printing(strings.Replace(ok, "/v1", "/v1beta1", 1)), ReasonOutput},
		"prints no status":        {printing(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}`), ReasonOutput},
		"prints an empty status":  {printing(strings.Replace(ok, marker, "", 1)), ReasonOutput},
		"prints a broken token":   {printing(strings.Replace(ok, marker, marker+`\n`, 1)), ReasonOutput},
		"prints a wrong type":     {printing(strings.Replace(ok, `"`+marker+`"`, `["`+marker+`"]`, 1)), ReasonOutput},
		"prints a bad time":       {printing(strings.Replace(ok, `"token"`, `"expirationTimestamp":"`+marker+`","token"`, 1)), ReasonOutput},
		"prints a bad pair":       {printing(strings.Replace(ok, `"token"`, `"clientCertificateData":"`+marker+`","clientKeyData":"`+marker+`","token"`, 1)), ReasonOutput},
		"prints half of the pair": {printing(strings.Replace(ok, `"token"`, `"clientKeyData"`, 1)), ReasonOutput},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlugin(t, "token", marker)
			tc.change(&p)
			c, err := NewRunner(Options{MaxOutput: 64 << 10}).Run(t.Context(), p, connection.Endpoint{})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, %v", c, err)
			}
			if e.Reason != tc.want {
				t.Errorf("got reason %s (%v), want %s", e.Reason, e, tc.want)
			}
			for _, text := range []string{e.Error(), fmt.Sprintf("%+v %#v", e, e), fmt.Sprintf("%v", errors.Unwrap(e))} {
				if strings.Contains(text, marker) {
					t.Errorf("the error shows a credential: %s", text)
				}
			}
		})
	}
}

func TestFormattingShowsNoCredential(t *testing.T) {
	c, problem := decode([]byte(`{"apiVersion":"v","kind":"ExecCredential","status":{"token":"`+marker+`"}}`), "v")
	if problem != "" {
		t.Fatal(problem)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%v %+v %#v", *c, *c, *c), string(b)} {
		if strings.Contains(text, marker) {
			t.Errorf("shows the token: %s", text)
		}
	}
}

// TestRunEndsWithItsContext shows that a plugin which would sleep for 12s ends with the caller's context.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pid := filepath.Join(t.TempDir(), "pid")
	done := make(chan error, 1)
	go func() {
		_, err := NewRunner(Options{}).Run(ctx, testPlugin(t, "hang", pid), connection.Endpoint{})
		done <- err
	}()
	waitFor(t, "the plugin to run", func() bool { _, err := os.Stat(pid); return err == nil })
	cancel()
	var e *Error
	if err := <-done; !errors.As(err, &e) || e.Reason != ReasonCanceled {
		t.Errorf("got %v", err)
	}
}

// waitFor polls for something that other processes do.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}
