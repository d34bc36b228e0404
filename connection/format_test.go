package connection

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-multierror"
	goyaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// secretive is a connection with the marker in every place that may hold a credential.
func secretive() Spec {
	return Spec{
		Endpoint: Endpoint{
			Server: "https://prod.example.com:6443", CAData: []byte("CA"), TLSServerName: "api.internal", InsecureSkipTLSVerify: true,
			Proxy: Proxy{URL: "http://proxy.example.com", Username: "proxy-user", Password: NewSecret(marker)}, DisableCompression: true,
		},
		Auth: Auth{
			Token: NewSecret(marker), ClientCertificateData: []byte("certificate"), ClientKeyData: NewSecret(marker),
			Username: "jane", Password: NewSecret(marker),
			Exec: &Exec{
				Command: "/bin/plugin", Args: []Secret{NewSecret("-v"), NewSecret(marker)}, Env: []EnvVar{{Name: "TOKEN", Value: NewSecret(marker)}},
				APIVersion: execV1, ProvideClusterInfo: true, ClusterConfig: NewSecret(`{"x":"` + marker + `"}`),
			},
			Impersonate: Impersonation{UserName: "bob smith", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"scopes": {"a"}}},
		},
	}
}

// foreign is a struct of somebody who holds connections where fmt can call no method.
type foreign struct {
	spec     Spec
	pointer  *Spec
	endpoint Endpoint
	proxy    Proxy
	auth     Auth
	exec     *Exec
	plugin   Exec
	variable EnvVar
	secret   Secret
	secrets  []Secret
	byName   map[string]Spec
	any      any
	result   Result
}

func newForeign(s Spec) foreign {
	return foreign{
		spec: s, pointer: &s, endpoint: s.Endpoint, proxy: s.Endpoint.Proxy, auth: s.Auth, exec: s.Auth.Exec, plugin: *s.Auth.Exec,
		variable: s.Auth.Exec.Env[0], secret: s.Auth.Token, secrets: s.Auth.Exec.Args, byName: map[string]Spec{"x": s}, any: s,
		result: Result{Spec: s},
	}
}

// everyFormat formats a value in every way that a program is likely to.
func everyFormat(t *testing.T, v any) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%10.3v", "% x", "%#q", "%w", "%T", "%U", "%c", "%e"} {
		all[verb] = fmt.Sprintf(verb, v)
	}
	all["print"] = fmt.Sprint(v) + fmt.Sprintln(v)
	all["error"] = fmt.Errorf("x: %v", v).Error()
	encoders := map[string]func(any) ([]byte, error){
		"JSON": json.Marshal, "XML": xml.Marshal, "YAML": yaml.Marshal,
		"go-yaml": goyaml.Marshal,
		"gob": func(v any) ([]byte, error) {
			var b bytes.Buffer
			err := gob.NewEncoder(&b).Encode(v)
			return b.Bytes(), err
		},
	}
	for name, encode := range encoders {
		text, err := encode(v)
		all[name] = string(text) + fmt.Sprint(err)
	}
	var out strings.Builder
	write := func(prefix, args string) { out.WriteString(prefix + args + "\n") }
	for _, logger := range []logr.Logger{
		funcr.New(write, funcr.Options{Verbosity: 10}), funcr.NewJSON(func(s string) { write("", s) }, funcr.Options{Verbosity: 10}),
		logr.FromSlogHandler(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.Level(-10)})),
		logr.FromSlogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.Level(-10)})),
	} {
		for level := range 11 {
			logger.V(level).WithValues("with", v).Info("message", "value", v, "pointer", &v)
		}
		err, _ := v.(error)
		logger.Error(err, "message", "value", v)
	}
	all["log"] = out.String()
	return all
}

// showsMarker reports whether text holds the marker, or its base64 or hexadecimal form.
func showsMarker(text string) bool {
	for _, form := range []string{marker, b64(marker)[:16], b64("x" + marker)[4:16], b64("xx" + marker)[4:16], fmt.Sprintf("%x", marker)[:20]} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
			return true
		}
	}
	return false
}

func TestNoFormatShowsACredential(t *testing.T) {
	s := secretive()
	f := newForeign(s)
	for name, v := range map[string]any{
		"Spec": s, "*Spec": &s, "Endpoint": s.Endpoint, "Proxy": s.Endpoint.Proxy, "Auth": s.Auth, "*Auth": &s.Auth, "*Exec": s.Auth.Exec,
		"Exec": *s.Auth.Exec, "EnvVar": s.Auth.Exec.Env[0], "[]EnvVar": s.Auth.Exec.Env, "Secret": s.Auth.Token, "*Secret": &s.Auth.Token,
		"[]Secret": s.Auth.Exec.Args, "map": map[string]Spec{"x": s}, "Result": Result{Spec: s}, "foreign": f, "*foreign": &f,
		"[]foreign": []foreign{f}, "a struct": struct{ Spec Spec }{s}, "embedded": struct{ Spec }{s}, "any": []any{s, &s},
	} {
		for format, text := range everyFormat(t, v) {
			if showsMarker(text) {
				t.Errorf("%s as %s shows a credential: %s", name, format, text)
			}
		}
	}
}

func TestFormatsAreReadable(t *testing.T) {
	s := secretive()
	e, a := s.EndpointFingerprint(), s.AuthFingerprint()
	want := `{endpoint:{server:https://prod.example.com:6443 ca:sha256:a17de9e21d10ce0a tlsServerName:api.internal insecureSkipTLSVerify:true ` +
		`proxy:{url:http://proxy.example.com username:proxy-user password:[redacted]} disableCompression:true} ` +
		`auth:{token:[redacted] clientCertificate:sha256:` + digestOfPublic([]byte("certificate"))[7:] + ` clientKey:[redacted] username:jane password:[redacted] ` +
		`exec:{command:/bin/plugin args:2 env:["TOKEN"] apiVersion:client.authentication.k8s.io/v1 provideClusterInfo:true clusterConfig:[redacted]} ` +
		`impersonate:{userName:"bob smith" uid:7 groups:["dev"] extra:map[scopes:[a]]}} ` +
		`endpointFingerprint:` + e.String() + ` authFingerprint:` + a.String() + `}`
	want = strings.Replace(want, "sha256:a17de9e21d10ce0a", digestOfPublic([]byte("CA")), 1)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
		if diff := cmp.Diff(want, fmt.Sprintf(verb, s)); diff != "" {
			t.Errorf("%s: %s", verb, diff)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	fromYAML, err := goyaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	fromYAML, err = yaml.YAMLToJSON(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := map[string]any{
		"endpoint": map[string]any{
			"server": "https://prod.example.com:6443", "ca": digestOfPublic([]byte("CA")), "tlsServerName": "api.internal",
			"insecureSkipTLSVerify": true, "disableCompression": true,
			"proxy": map[string]any{"url": "http://proxy.example.com", "username": "proxy-user", "password": "[redacted]"},
		},
		"auth": map[string]any{
			"token": "[redacted]", "clientCertificate": digestOfPublic([]byte("certificate")), "clientKey": "[redacted]",
			"username": "jane", "password": "[redacted]",
			"exec": map[string]any{
				"command": "/bin/plugin", "args": 2.0, "env": []any{"TOKEN"}, "apiVersion": execV1, "provideClusterInfo": true, "clusterConfig": "[redacted]",
			},
			"impersonate": map[string]any{"userName": "bob smith", "uid": "7", "groups": []any{"dev"}, "extra": map[string]any{"scopes": []any{"a"}}},
		},
		"endpointFingerprint": e.String(), "authFingerprint": a.String(),
	}
	for name, text := range map[string][]byte{"JSON": text, "YAML": fromYAML} {
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(any(wantJSON), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTheZeroValuesFormat(t *testing.T) {
	for want, v := range map[string]any{"{}": Endpoint{}, "[{} {}]": []fmt.Stringer{Auth{}, Exec{}}, "": Secret{}, "<nil>": (*Exec)(nil)} {
		if got := fmt.Sprint(v); got != want {
			t.Errorf("%T is formatted as %q, want %q", v, got, want)
		}
	}
}

// TestNoErrorShowsACredential feeds the whole corpus of malformed data, with the marker in every secret, under every kind of
// policy, and looks for the marker in the results and errors, in every format.
func TestNoErrorShowsACredential(t *testing.T) {
	audit := everything()
	audit.Audit = true
	for _, policy := range []Policy{{}, {Audit: true}, LocalFiles(), everything(), audit} {
		o := KubeconfigOptions{Policy: policy, Dir: "/etc", ReadFile: newRecorder().read}
		for _, m := range malformedKubeconfigs() {
			if len(m.data) > DefaultMaxSize {
				m.data = m.data[:4096]
			}
			r, err := ParseKubeconfig(t.Context(), []byte(m.data), o)
			lookForMarker(t, m.name, r, err)
			all, err := ParseContexts(t.Context(), []byte(m.data), o)
			lookForMarker(t, m.name, all, err)
		}
		for _, m := range malformedArgoCD() {
			r, err := ParseArgoCD(argoCD(m.data), policy)
			lookForMarker(t, m.name, r, err)
		}
	}
}

func lookForMarker(t *testing.T, name string, result any, err error) {
	t.Helper()
	values := []any{result}
	if err != nil {
		values = append(values, err)
	}
	if several, ok := err.(*multierror.Error); ok {
		for _, one := range several.Errors {
			values = append(values, one)
		}
	}
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if text := fmt.Sprintf(verb, v); showsMarker(text) {
				t.Errorf("%s: %s of %T shows a credential: %s", name, verb, v, text)
			}
		}
		if text, _ := json.Marshal(v); showsMarker(string(text)) {
			t.Errorf("%s: the JSON of %T shows a credential: %s", name, v, text)
		}
	}
	if err == nil {
		return
	}
	var out strings.Builder
	logger := funcr.New(func(prefix, args string) { out.WriteString(prefix + args) }, funcr.Options{Verbosity: 10})
	logger.Error(err, "rejected", "result", result)
	for _, level := range []int{0, 1, 10} {
		logger.V(level).Info("rejected", "err", err, "result", result)
	}
	if showsMarker(out.String()) {
		t.Errorf("%s: a log line shows a credential: %s", name, out.String())
	}
}

// TestNamesAreShownBounded shows that whoever writes the data cannot flood a log with names.
func TestNamesAreShownBounded(t *testing.T) {
	long := strings.Repeat("ü", 2_000)
	s := Spec{
		Endpoint: Endpoint{Server: "https://a/" + long, TLSServerName: long, Proxy: Proxy{URL: long, Username: long}},
		Auth:     Auth{Username: long, Exec: &Exec{Command: long}, Impersonate: Impersonation{UserName: long, UID: long, Extra: make(map[string][]string)}},
	}
	for i := range 100 {
		s.Auth.Exec.Env = append(s.Auth.Exec.Env, EnvVar{Name: fmt.Sprint(i) + long})
		s.Auth.Impersonate.Groups = append(s.Auth.Impersonate.Groups, fmt.Sprint(i)+long)
		s.Auth.Impersonate.Extra[fmt.Sprint(i)+long] = []string{long}
	}
	text, err := json.Marshal(s)
	if err != nil || len(text) > 50_000 || len(s.String()) > 50_000 || !strings.Contains(s.String(), "and 68 more") {
		t.Errorf("%d bytes in JSON, %d as text: %v", len(text), len(s.String()), err)
	}
	variable := s.Auth.Exec.Env[0].String()
	if len(variable) > 1000 {
		t.Errorf("a variable is shown in %d bytes", len(variable))
	}
}
