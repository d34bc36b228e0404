package connection

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// checkOutcome checks what holds for every outcome of every parser: errors are of this package's types and show no
// credential, and a connection keeps its promises.
func checkOutcome(t *testing.T, policy Policy, r Result, err error, marked bool) {
	t.Helper()
	switch e := err.(type) {
	case nil:
		checkSpec(t, policy, r.Spec)
	case *ParseError, *PolicyError, *AccessError:
	case *multierror.Error:
		for _, one := range e.Errors {
			if _, ok := one.(*PolicyError); !ok {
				t.Errorf("one of several errors is a %T: %v", one, one)
			}
		}
	default:
		t.Errorf("an error of another type: %T: %v", err, err)
	}
	if err != nil && strings.ContainsAny(err.Error(), "\n\r\x00") {
		t.Errorf("an error of several lines: %q", err)
	}
	if marked {
		lookForMarker(t, "fuzz", r, err)
	}
}

// marked reports whether the marker is nowhere but in secrets, where it must not be seen. The fuzzer may have moved it
// to a server's name, say, which is shown.
func marked(data []byte) bool {
	var document yaml.Node
	if yaml.Unmarshal(data, &document) != nil {
		return true // nothing of it may be seen
	}
	secret := map[string]bool{
		"token": true, "password": true, "value": true, "args": true, "id-token": true, "bearerToken": true,
		"client-key-data": true, "client-certificate-data": true, "certificate-authority-data": true,
		"keyData": true, "certData": true, "caData": true, "extension": true,
	}
	var hidden func(n *yaml.Node, key string) bool
	hidden = func(n *yaml.Node, key string) bool {
		if n.Kind == yaml.ScalarNode && showsMarker(n.Value) {
			return secret[key]
		}
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode {
				if i%2 == 0 {
					if showsMarker(child.Value) {
						return false // some keys are names, such as those of variables
					}
					continue
				}
				if !secret[key] && !hidden(child, n.Content[i-1].Value) || secret[key] && !hidden(child, key) {
					return false
				}
			} else if !hidden(child, key) {
				return false
			}
		}
		return true
	}
	return hidden(&document, "")
}

func checkSpec(t *testing.T, policy Policy, s Spec) {
	t.Helper()
	u, err := url.Parse(s.Endpoint.Server)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		t.Errorf("the server is %q", s.Endpoint.Server)
	}
	if !policy.Audit {
		checkPolicy(t, policy, s)
	}
	if s.Auth.Exec != nil && (s.Auth.Exec.Command == "" || s.Auth.Exec.APIVersion == "") {
		t.Errorf("a plugin without command or version: %s", s)
	}
	if strings.ContainsAny(s.Auth.Token.Reveal(), " \t\r\n\x00") {
		t.Error("a token that no header can carry")
	}
	if (s.Auth.ClientCertificateData == nil) != s.Auth.ClientKeyData.IsZero() {
		t.Error("a certificate without key, or a key without certificate")
	}
	if i := s.Auth.Impersonate; !i.IsZero() && i.UserName == "" {
		t.Errorf("impersonates nobody in groups: %s", s)
	}
	again := s
	if !again.Equal(s) || again.AuthFingerprint() != s.AuthFingerprint() || again.EndpointFingerprint() != s.EndpointFingerprint() {
		t.Error("a connection differs from itself")
	}
}

// checkPolicy checks, with means of its own, that a connection has nothing which the policy refuses.
func checkPolicy(t *testing.T, policy Policy, s Spec) {
	t.Helper()
	for what, has := range map[string]bool{
		"plain HTTP":    strings.HasPrefix(s.Endpoint.Server, "http:") && !policy.AllowPlainHTTP,
		"no TLS":        s.Endpoint.InsecureSkipTLSVerify && !policy.AllowInsecureTLS,
		"a proxy":       s.Endpoint.Proxy != Proxy{} && !policy.AllowProxy,
		"basic auth":    (s.Auth.Username != "" || !s.Auth.Password.IsZero()) && !policy.AllowBasicAuth && !policy.AllowURLCredentials,
		"impersonation": !s.Auth.Impersonate.IsZero() && !policy.AllowImpersonation,
	} {
		if has {
			t.Errorf("%s against the policy: %s", what, s)
		}
	}
	if s.Auth.Exec == nil {
		return
	}
	configured := []string{"/bin/generous", "/bin/modest", "/bin/plain"} // by the operator, in accessConfig
	if command := s.Auth.Exec.Command; !slices.Contains(policy.ExecCommands, command) && !slices.Contains(configured, command) {
		t.Errorf("the plugin %q against the policy", command)
	}
	for _, v := range s.Auth.Exec.Env {
		if !v.Configured && (!slices.Contains(policy.ExecEnv, v.Name) || strings.HasPrefix(v.Name, "LD_")) {
			t.Errorf("the variable %q against the policy", v.Name)
		}
		if v.Configured && slices.Contains(policy.ExecCommands, s.Auth.Exec.Command) {
			t.Errorf("the variable %q of an untrusted plugin passes for the operator's", v.Name)
		}
	}
}

// nothingThere is a ReadFile that fails if policy does not allow files.
func nothingThere(t *testing.T, policy Policy) func(context.Context, string) ([]byte, error) {
	return func(_ context.Context, path string) ([]byte, error) {
		if !policy.AllowFiles && !policy.Audit {
			t.Errorf("opened %q against the policy", path)
		}
		if !filepath.IsAbs(path) || path != filepath.Clean(path) {
			t.Errorf("opened %q", path)
		}
		return nil, fs.ErrNotExist
	}
}

// policyOf spreads the policies over a byte.
func policyOf(b byte) Policy {
	switch b % 4 {
	case 0:
		return Policy{}
	case 1:
		return LocalFiles()
	case 2:
		return Policy{Audit: true}
	default:
		p := everything()
		p.DenyLoopback, p.DenyLinkLocal, p.DenyPrivate = b&4 != 0, b&8 != 0, b&16 != 0
		return p
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	for i, m := range malformedKubeconfigs() {
		if len(m.data) < 1<<16 {
			f.Add([]byte(m.data), byte(i))
			f.Add([]byte(m.data), byte(3))
		}
	}
	f.Add([]byte(kubeconfig(secureCluster(), "token: "+marker)), byte(0))
	f.Add([]byte(severalContexts), byte(1))
	f.Add([]byte(kubeconfig(plainServer, pluginStart+"  env: [{name: REGION, value: "+marker+"}]")), byte(3))
	f.Fuzz(func(t *testing.T, data []byte, which byte) {
		policy := policyOf(which)
		o := KubeconfigOptions{Policy: policy, ReadFile: nothingThere(t, policy)}
		if which&32 != 0 {
			o.Dir = "/etc/kube"
		}
		marked := marked(data)
		r, err := ParseKubeconfig(t.Context(), data, o)
		checkOutcome(t, policy, r, err, marked)
		all, errAll := ParseContexts(t.Context(), data, o)
		if errAll != nil {
			checkOutcome(t, policy, Result{}, errAll, marked)
		}
		for _, c := range all {
			checkOutcome(t, policy, c.Result, c.Err, marked)
		}
		if err == nil && errAll != nil {
			t.Errorf("one context can be read, and yet not all: %v", errAll)
		}
	})
}

func FuzzParseArgoCD(f *testing.F) {
	for i, m := range malformedArgoCD() {
		f.Add([]byte(m.data), "https://prod.example.com", byte(i))
		f.Add([]byte(m.data), "prod.example.com:1", byte(3))
	}
	f.Fuzz(func(t *testing.T, config []byte, server string, which byte) {
		data := argoCD(string(config))
		data["server"] = []byte(server)
		r, err := ParseArgoCD(data, policyOf(which))
		checkOutcome(t, policyOf(which), r, err, marked(config) && !showsMarker(server))
	})
}

func FuzzParseAccessProvider(f *testing.F) {
	for i, seed := range []struct{ exec, args, envs string }{
		{"", "", ""}, {"null", "null", "null"}, {" null", "null\n", " null\t"}, {"{}", "[]", "{}"}, {`{"a":1}`, `["` + marker + `"]`, `{"A":"` + marker + `"}`},
		{"[", `{"` + marker, marker}, {`"x"`, `[null]`, `{"LD_PRELOAD":"` + marker + `"}`}, {"1", "[1]", `{"A":null}`},
	} {
		for provider := range 3 {
			f.Add("https://prod.example.com", "", []byte(admin().cert), []byte(seed.exec), []byte(seed.args), []byte(seed.envs), byte(i%4+64*provider))
		}
	}
	f.Add("", "http://proxy", []byte("x"), []byte{}, []byte{}, []byte{}, byte(3))
	f.Fuzz(func(t *testing.T, server, proxy string, ca, exec, args, envs []byte, which byte) {
		config, p := accessConfig(), profile()
		name := []string{"plain", "modest", "generous", "generous"}[which>>6]
		o := offer(name, clientcmdv1.Cluster{
			ProxyURL: proxy, CertificateAuthorityData: ca, InsecureSkipTLSVerify: which&32 != 0,
			Extensions: []clientcmdv1.NamedExtension{
				extension(execExtension, string(exec)), extension(additionalArgsExtension, string(args)), extension(additionalEnvsExtension, string(envs)),
			},
		})
		o.Cluster.Server = server
		p.Status.AccessProviders = append(p.Status.AccessProviders, o)
		before, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseAccessProvider(config, p, policyOf(which))
		public := showsMarker(server) || showsMarker(proxy)
		if r.Spec.Auth.Exec != nil {
			for _, v := range r.Spec.Auth.Exec.Env {
				public = public || showsMarker(v.Name)
			}
		}
		checkOutcome(t, policyOf(which), r, err, !public)
		again, _ := ParseAccessProvider(config, p, policyOf(which))
		if !r.Spec.Equal(again.Spec) {
			t.Errorf("read twice: %s, and then %s", r.Spec, again.Spec)
		}
		if after, err := json.Marshal(config); err != nil || string(after) != string(before) {
			t.Errorf("the configuration was changed: %v", err)
		}
	})
}

func FuzzFromTokenCA(f *testing.F) {
	for i, server := range []string{
		"https://prod.example.com:6443", "http://127.0.0.1", "https://[::1]", "x", "", "https://u:p@x", "https://127.1", "https://x#", "https://[fe80::1%25lo]",
	} {
		f.Add(server, []byte(marker), []byte(admin().cert), byte(i))
		f.Add(server, []byte(marker+"\n"), []byte(marker), byte(3))
	}
	f.Fuzz(func(t *testing.T, server string, token, ca []byte, which byte) {
		r, err := FromTokenCA(server, token, ca, policyOf(which))
		checkOutcome(t, policyOf(which), r, err, !showsMarker(server))
		if err == nil && r.Spec.Auth.Token.IsZero() {
			t.Error("a connection without token")
		}
	})
}

// FuzzParseAddress checks that taking a URL apart and putting it together again gives the same parts.
func FuzzParseAddress(f *testing.F) {
	for _, m := range []string{
		"https://prod.example.com:6443/a/b", "https://[2001:db8::1]:1", "https://a.example.com/b%2Fc", "HTTPS://A:0443/", "socks5://x", "https://%31",
		"https://a@b@c", "https://a\\b", "https:a", "//x", "https://x:1:2", "https://[::ffff:1.2.3.4]", "https://xn--a", "https://a//b", "https://a/%2e%2e/b",
	} {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := parseAddress(text, "https", "http", "socks5")
		if a.problem != "" || a.badHost {
			return
		}
		b := parseAddress(a.String(), "https", "http", "socks5")
		a.hasUser, a.username, a.password = false, "", ""
		if a != b {
			t.Errorf("%q is %+v, and put together again %+v", text, a, b)
		}
		if u, err := url.Parse(a.String()); err != nil || !strings.EqualFold(u.Hostname(), a.host) {
			t.Errorf("%q is at %q for us and at %v for others: %v", text, a.host, u, err)
		}
	})
}
