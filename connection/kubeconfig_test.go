package connection

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestParseKubeconfigReadsEveryField(t *testing.T) {
	data := kubeconfig(
		secureCluster()+`
tls-server-name: api.internal
disable-compression: true
proxy-url: socks5://u:p@proxy.example.com:1080
extensions:
- name: minikube.sigs.k8s.io
  extension: {version: v1}
- name: client.authentication.k8s.io/exec
  extension: {clusterName: c1, size: 3, ratio: 0.5, on: true, off: null, at: 2020-01-01, list: [a, "1"]}`,
		"client-certificate-data: "+b64(admin().cert)+"\nclient-key-data: "+b64(admin().key)+`
username: jane
password: pw
exec:
  command: /bin/../bin/plugin
  args: [-v, "1"]
  env: [{name: B, value: b}, {name: A, value: ""}]
  apiVersion: client.authentication.k8s.io/v1beta1
  installHint: install it
  provideClusterInfo: true
  interactiveMode: IfAvailable
as: jane
as-uid: u-1
as-groups: [dev]
as-user-extra: {scopes: [a, b]}`,
	)
	got, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: everything()})
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Name: "main", Spec: Spec{
		Endpoint: Endpoint{
			Server: "https://prod.example.com:6443", CAData: []byte(admin().cert), TLSServerName: "api.internal", DisableCompression: true,
			Proxy: Proxy{URL: "socks5://proxy.example.com:1080", Username: "u", Password: NewSecret("p")},
		},
		Auth: Auth{
			ClientCertificateData: []byte(admin().cert), ClientKeyData: NewSecret(admin().key),
			Username: "jane", Password: NewSecret("pw"),
			Exec: &Exec{
				Command: "/bin/plugin", Args: []Secret{NewSecret("-v"), NewSecret("1")},
				Env: []EnvVar{{Name: "B", Value: NewSecret("b")}, {Name: "A"}}, APIVersion: execV1beta1, ProvideClusterInfo: true,
				ClusterConfig: NewSecret(`{"at":"2020-01-01","clusterName":"c1","list":["a","1"],"off":null,"on":true,"ratio":0.5,"size":3}`),
			},
			Impersonate: Impersonation{UserName: "jane", UID: "u-1", Groups: []string{"dev"}, Extra: map[string][]string{"scopes": {"a", "b"}}},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestParseKubeconfigTakesOddities lists what is odd and yet accepted, and what becomes of it.
func TestParseKubeconfigTakesOddities(t *testing.T) {
	good := kubeconfig(plainServer, "token: abc")
	var object any
	if err := yaml.Unmarshal([]byte(good), &object); err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	indented, err := json.MarshalIndent(object, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	plain := Spec{Endpoint: Endpoint{Server: "https://prod.example.com:6443"}, Auth: Auth{Token: NewSecret("abc")}}
	server := func(url string) Spec {
		return Spec{Endpoint: Endpoint{Server: url}, Auth: Auth{Token: NewSecret("abc")}}
	}
	withCA := plain
	withCA.Endpoint.CAData = []byte(admin().cert)
	token := func(token string) Spec { return Spec{Endpoint: plain.Endpoint, Auth: Auth{Token: NewSecret(token)}} }
	ca := func(pem string) string {
		return kubeconfig(plainServer+"\ncertificate-authority-data: "+b64(pem), "token: abc")
	}
	certificate := Spec{Endpoint: plain.Endpoint, Auth: Auth{ClientCertificateData: []byte(admin().cert), ClientKeyData: NewSecret(admin().key)}}
	tests := []struct {
		name    string
		data    string
		want    Spec
		ignored []string
	}{
		{name: "nothing odd", data: good, want: plain},
		{name: "a byte order mark", data: "\ufeff" + good, want: plain},
		{name: "CRLF", data: strings.ReplaceAll(good, "\n", "\r\n"), want: plain},
		{name: "a leading ---", data: "---\n" + good, want: plain},
		{name: "a trailing ---", data: good + "---\n", want: plain},
		{name: "a trailing end of document", data: good + "...\n", want: plain},
		{name: "JSON", data: string(compact), want: plain},
		{name: "JSON indented with tabs", data: string(indented), want: plain},
		{name: "neither kind nor version", data: strings.TrimPrefix(good, "apiVersion: v1\nkind: Config\n"), want: plain},
		{name: "no current context, and one context", data: strings.Replace(good, "current-context: main", "", 1), want: plain},
		{name: "a context named oddly", data: strings.ReplaceAll(good, "main", `"a/b: c@d\te"`), want: plain},
		{name: "an unused user twice", data: strings.Replace(good, "contexts:", "- {name: b, user: {}}\n- {name: b, user: {}}\ncontexts:", 1), want: plain},
		{name: "an unused cluster that is broken", data: strings.Replace(good, "users:", "- {name: b, cluster: {server: x}}\nusers:", 1), want: plain},
		{name: "preferences, namespaces and extensions of others",
			data: strings.Replace(good, "user: admin}", "user: admin, namespace: x, extensions: []}", 1) + "preferences: {colors: true}\nextensions: []\n", want: plain},
		{name: "unknown fields", want: plain,
			data:    strings.Replace(kubeconfig(plainServer+"\nnewField: "+marker, "token: abc\nsome-token: "+marker), "user: admin}", "user: admin, tier: gold}", 1) + "more: x\n",
			ignored: []string{"more", `contexts["main"].tier`, `clusters["prod"].newField`, `users["admin"].some-token`}},
		{name: "a credential in the place of a key", want: plain, data: kubeconfig(plainServer, "token: abc\n"+marker+": x\nabcdef:"),
			ignored: []string{`users["admin"].(a field with an unusual name)`, `users["admin"].(a field with an unusual name)`}},
		{name: "a path", data: kubeconfig("server: https://proxy.example.com:9092/cluster1/", "token: abc"), want: server("https://proxy.example.com:9092/cluster1")},
		{name: "an escaped path", data: kubeconfig("server: https://a.example.com/b%2Fc", "token: abc"), want: server("https://a.example.com/b%2Fc")},
		{name: "capitals in the server", data: kubeconfig("server: HTTPS://Prod.Example.com", "token: abc"), want: server("https://prod.example.com")},
		{name: "an IPv6 server", data: kubeconfig("server: 'https://[2001:db8::1]:6443'", "token: abc"), want: server("https://[2001:db8::1]:6443")},
		{name: "an IPv6 server without port", data: kubeconfig("server: 'https://[2001:db8::1]'", "token: abc"), want: server("https://[2001:db8::1]")},
		{name: "a server in the cluster's DNS", data: kubeconfig("server: https://kubernetes.default.svc", "token: abc"), want: server("https://kubernetes.default.svc")},
		{name: "a CA with rubbish behind it", data: ca(admin().cert + marker), want: withCA},
		{name: "a CA with text before it, and CRLF", data: ca("# the CA\r\n" + strings.ReplaceAll(admin().cert, "\n", "\r\n")), want: withCA},
		{name: "a CA with its key", data: ca(admin().cert + admin().key), want: withCA,
			ignored: []string{`clusters["prod"].certificate-authority-data (a block that is no certificate)`}},
		{name: "base64 over several lines", want: withCA,
			data: kubeconfig(plainServer+"\ncertificate-authority-data: |\n  "+b64(admin().cert)[:64]+"\n  "+b64(admin().cert)[64:], "token: abc")},
		{name: "a client certificate with its key in one", want: certificate,
			data: kubeconfig(plainServer, "client-certificate-data: "+b64(admin().key+admin().cert)+"\nclient-key-data: "+b64(admin().cert+admin().key))},
		{name: "a token with a newline at its end", data: kubeconfig(plainServer, "token: |\n  abc"), want: token("abc")},
		{name: "a token that is a number", data: kubeconfig(plainServer, "token: 007"), want: token("007")},
		{name: "a token that YAML 1.1 takes for a truth value", data: kubeconfig(plainServer, "token: yes"), want: token("yes")},
		{name: "a token with the standard tag", data: kubeconfig(plainServer, "token: !!str 1"), want: token("1")},
		{name: "an anonymous user", data: kubeconfig(plainServer, "{}"), want: Spec{Endpoint: plain.Endpoint}},
		{name: "exec without interactiveMode", data: kubeconfig(plainServer, "exec: {command: /bin/plugin, apiVersion: "+execV1+"}"),
			want: Spec{Endpoint: plain.Endpoint, Auth: Auth{Exec: &Exec{Command: "/bin/plugin", APIVersion: execV1}}}},
		{name: "user information in the server's URL", data: kubeconfig("server: https://jane:pw@prod.example.com:6443", "{}"),
			want: Spec{Endpoint: plain.Endpoint, Auth: Auth{Username: "jane", Password: NewSecret("pw")}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseKubeconfig(t.Context(), []byte(test.data), KubeconfigOptions{Policy: everything()})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Spec); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.ignored, got.Ignored); diff != "" {
				t.Error("ignored:", diff)
			}
		})
	}
}

func TestParseKubeconfigUsesTheContextAskedFor(t *testing.T) {
	data := kubeconfig(plainServer, "token: abc") + "- name: second\n  context: {cluster: prod, user: second}\n" +
		"users2: x\n"
	data = strings.Replace(data, "contexts:", "- {name: second, user: {token: def}}\ncontexts:", 1)
	got, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Context: "second"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "second" || got.Spec.Auth.Token.Reveal() != "def" {
		t.Errorf("read %q with %s", got.Name, got.Spec)
	}
	_, err = ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Context: "third"})
	if got, want := reasons(t, err), `contexts["third"]: names something that does not exist`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

const severalContexts = `
current-context: good
clusters:
- {name: prod, cluster: {server: "https://prod.example.com"}}
- {name: bare, cluster: {server: "prod.example.com"}}
- {name: open, cluster: {server: "http://prod.example.com"}}
users:
- {name: ci, user: {token: abc}}
- {name: old, user: {auth-provider: {name: gcp}}}
- {name: twice, user: {token: a}}
- {name: twice, user: {token: b}}
contexts:
- {name: good, context: {cluster: prod, user: ci}}
- {name: bare, context: {cluster: bare, user: ci}}
- {name: open, context: {cluster: open, user: ci}}
- {name: old, context: {cluster: prod, user: old}}
- {name: twice, context: {cluster: prod, user: twice}}
- {name: same, context: {cluster: prod, user: ci}}
- {name: same, context: {cluster: prod, user: ci}}
- {name: broken, context: [x]}
- {name: gone, context: {cluster: gone, user: ci}}
- {name: last, context: {cluster: prod, user: ci}}
`

func TestABrokenContextHarmsOnlyItself(t *testing.T) {
	results, err := ParseContexts(t.Context(), []byte(severalContexts), KubeconfigOptions{Policy: LocalFiles()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, strings.TrimSpace(r.Name+" "+reasons(t, r.Err)))
		if usable := r.Spec.Endpoint.Server != ""; usable != (r.Err == nil) {
			t.Errorf("%s: usable %t with the error %v", r.Name, usable, r.Err)
		}
	}
	want := []string{
		"good",
		`bare clusters["bare"].server: has no scheme`,
		`open clusters["open"].server: PlainHTTP`,
		`old users["old"].auth-provider: AuthProvider`,
		`twice contexts["twice"].user: names something that exists twice`,
		`same contexts["same"]: names something that exists twice`,
		`broken contexts["broken"]: has the wrong type`,
		`gone contexts["gone"].cluster: names something that does not exist`,
		"last",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAStrictPolicyRefusesTheWholeFile(t *testing.T) {
	_, err := ParseContexts(t.Context(), []byte(severalContexts), KubeconfigOptions{})
	want := `clusters["open"].server: PlainHTTP; users["old"].auth-provider: AuthProvider`
	if got := reasons(t, err); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const text = `policy refuses clusters["open"].server: plain HTTP is not allowed (PlainHTTP); ` +
		`policy refuses users["old"].auth-provider: auth providers are never allowed (AuthProvider)`
	if err.Error() != text {
		t.Errorf("the text is %q, want %q", err, text)
	}
}

func TestResultsOfOneFileAreIndependent(t *testing.T) {
	data := kubeconfig(plainServer+"\ncertificate-authority: /x\ncertificate-authority-data: "+b64(admin().cert), "token: abc") +
		"- {name: second, context: {cluster: prod, user: admin}}\n"
	results, err := ParseContexts(t.Context(), []byte(data), KubeconfigOptions{Policy: LocalFiles()})
	if err != nil || len(results) != 2 {
		t.Fatal(results, err)
	}
	want := []string{`clusters["prod"].certificate-authority`}
	for _, r := range results {
		if diff := cmp.Diff(want, r.Ignored); r.Err != nil || diff != "" {
			t.Errorf("%s: %v, ignored: %s", r.Name, r.Err, diff)
		}
	}
}

func TestAPluginGetsTheConfigOfItsOwnCluster(t *testing.T) {
	cluster := func(name string) string {
		return "- name: " + name + "\n  cluster:\n    server: https://" + name + "\n    extensions: [{name: " + execExtension + ", extension: {name: " + name + "}}]\n"
	}
	data := "clusters:\n" + cluster("a") + cluster("b") + "users: [{name: u, user: {exec: {command: /bin/plugin, apiVersion: " + execV1 + "}}}]\n" +
		"contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u}}]\n"
	results, err := ParseContexts(t.Context(), []byte(data), KubeconfigOptions{Policy: everything()})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if got, want := r.Spec.Auth.Exec.ClusterConfig.Reveal(), `{"name":"`+r.Name+`"}`; got != want {
			t.Errorf("context %s: the plugin gets %s", r.Name, got)
		}
	}
}

// TestHostileSizesStayCheap gives large files their worst shapes: what one context costs must not be
// multiplied by their number.
func TestHostileSizesStayCheap(t *testing.T) {
	repeat := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	contexts := "contexts:\n" + repeat(2000, "- {name: c%[1]d, context: {cluster: k, user: u}}\n")
	cluster := "clusters: [{name: k, cluster: {server: 'https://k', certificate-authority-data: " + b64(strings.Repeat(admin().cert, 400)) + "}}]\n"
	user := "users: [{name: u, user: {token: abc}}]\n"
	for name, data := range map[string]string{
		"one large CA":         cluster + user + contexts,
		"many unknown fields":  "clusters: [{name: k, cluster: {server: 'https://k'}}]\n" + user + contexts + repeat(10000, "x%d: 1\n"),
		"many clusters, users": "clusters:\n" + repeat(2000, "- {name: k%d}\n") + "users:\n" + repeat(2000, "- {name: u%d}\n") + contexts,
	} {
		if len(data) > DefaultMaxSize {
			t.Fatalf("%s: %d bytes", name, len(data))
		}
		results, err := ParseContexts(t.Context(), []byte(data), KubeconfigOptions{})
		if err != nil || len(results) != 2000 {
			t.Fatalf("%s: %d contexts, %v", name, len(results), err)
		}
		for _, r := range results {
			if len(r.Ignored) > mostIgnored+1 {
				t.Fatalf("%s: %d ignored fields", name, len(r.Ignored))
			}
		}
		if len(results) > 1 && len(results[0].Spec.Endpoint.CAData) > 0 && &results[0].Spec.Endpoint.CAData[0] != &results[1].Spec.Endpoint.CAData[0] {
			t.Errorf("%s: the CA was read for each context", name)
		}
	}
	violations := "users:\n" + repeat(2000, "- {name: u%d, user: {auth-provider: {}}}\n")
	_, err := ParseContexts(t.Context(), []byte(violations), KubeconfigOptions{})
	if err == nil || len(err.Error()) > 2000 || !strings.HasSuffix(err.Error(), "and 1992 more") {
		t.Errorf("2,000 violations are told as %.3000v", err)
	}
}
