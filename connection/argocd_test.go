package connection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func argoCD(config string) map[string][]byte {
	return map[string][]byte{
		"name": []byte("prod"), "server": []byte("https://prod.example.com"), "config": []byte(config),
		"namespaces": []byte("a,b"), "project": []byte("default"), "shard": []byte("1"),
	}
}

func TestParseArgoCD(t *testing.T) {
	tls := `"tlsClientConfig":{"serverName":"api.internal","caData":"` + b64(admin().cert) + `","insecure":false}`
	endpoint := Endpoint{Server: "https://prod.example.com", CAData: []byte(admin().cert), TLSServerName: "api.internal"}
	bare := Endpoint{Server: "https://prod.example.com"}
	through := bare
	through.Proxy, through.DisableCompression = Proxy{URL: "http://proxy:3128"}, true
	for _, test := range []struct {
		name   string
		config string
		want   Spec
	}{
		{"token", `{"bearerToken":"abc",` + tls + `}`, Spec{endpoint, Auth{Token: NewSecret("abc")}}},
		{"basic auth", `{"username":"jane","password":"pw",` + tls + `}`, Spec{endpoint, Auth{Username: "jane", Password: NewSecret("pw")}}},
		{"client certificate", `{"tlsClientConfig":{"certData":"` + b64(admin().cert) + `","keyData":"` + b64(admin().key) + `"}}`,
			Spec{bare, Auth{ClientCertificateData: []byte(admin().cert), ClientKeyData: NewSecret(admin().key)}}},
		{"plugin", `{"execProviderConfig":{"command":"/bin/plugin","args":["-v"],"env":{"B":"b","A":"a"},"apiVersion":"` + execV1 + `","installHint":"x"}}`,
			Spec{bare, Auth{Exec: &Exec{Command: "/bin/plugin", Args: []Secret{NewSecret("-v")},
				Env: []EnvVar{{Name: "A", Value: NewSecret("a")}, {Name: "B", Value: NewSecret("b")}}, APIVersion: execV1}}}},
		{"proxy", `{"bearerToken":"abc","proxyUrl":"http://proxy:3128","disableCompression":true}`, Spec{through, Auth{Token: NewSecret("abc")}}},
		{"nulls", `{"bearerToken":"abc","awsAuthConfig":null,"execProviderConfig":null,"tlsClientConfig":null}`, Spec{bare, Auth{Token: NewSecret("abc")}}},
		{"indented with tabs", "{\n\t\"bearerToken\":\n\t\t\"abc\"\n}\n", Spec{bare, Auth{Token: NewSecret("abc")}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseArgoCD(argoCD(test.config), everything())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Result{Name: "prod", Spec: test.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// malformedArgoCD are configs of cluster Secrets that are refused.
func malformedArgoCD() []malformed {
	open := everything()
	return []malformed{
		{"no config", "", open, "config: holds no credential"},
		{"empty config", "{}", open, "config: holds no credential"},
		{"not JSON", `{"bearerToken":"` + marker, open, ": is neither YAML nor JSON"},
		{"a list", `["` + marker + `"]`, open, ": is not an object"},
		{"key twice", `{"bearerToken":"a","bearerToken":"` + marker + `"}`, open, ": has a key twice"},
		{"base64 twice", b64(`{"bearerToken":"` + marker + `"}`), open, ": is encoded in base64 twice"},
		{"token of another type", `{"bearerToken":{"x":"` + marker + `"}}`, open, "config.bearerToken: has the wrong type"},
		{"token with a newline", `{"bearerToken":"` + marker + `\nx"}`, open, "config.bearerToken: has space, control or non-ASCII characters"},
		{"TLS of another type", `{"tlsClientConfig":"` + marker + `"}`, open, "config.tlsClientConfig: has the wrong type"},
		{"certificate without key", `{"tlsClientConfig":{"certData":"` + b64(admin().cert) + `"}}`, open, "config.tlsClientConfig.keyData: is missing"},
		{"bad key", `{"tlsClientConfig":{"certData":"` + b64(admin().cert) + `","keyData":"` + b64(marker) + `"}}`, open,
			"config.tlsClientConfig.keyData: holds no PEM block of the right type"},
		{"bad CA", `{"bearerToken":"a","tlsClientConfig":{"caData":"` + b64(marker) + `"}}`, open,
			"config.tlsClientConfig.caData: holds no PEM block of the right type"},
		{"insecure", `{"bearerToken":"` + marker + `","tlsClientConfig":{"insecure":true}}`, Policy{}, "config.tlsClientConfig.insecure: InsecureTLS"},
		{"basic auth", `{"username":"u","password":"` + marker + `"}`, Policy{}, "config.username: BasicAuth"},
		{"proxy", `{"bearerToken":"a","proxyUrl":"http://proxy"}`, Policy{}, "config.proxyUrl: Proxy"},
		{"plugin", `{"execProviderConfig":{"command":"/x","args":["` + marker + `"]}}`, Policy{}, "config.execProviderConfig: Exec"},
		{"plugin without version", `{"execProviderConfig":{"command":"/bin/plugin"}}`, open, "config.execProviderConfig.apiVersion: is missing"},
		{"plugin with PATH", `{"execProviderConfig":{"command":"/bin/plugin","env":{"PATH":"` + marker + `"}}}`, open, "config.execProviderConfig.env: ExecEnv"},
		{"AWS", `{"awsAuthConfig":{"clusterName":"` + marker + `"}}`, open, "config.awsAuthConfig: AuthProvider"},
		{"several", `{"awsAuthConfig":{},"proxyUrl":"http://proxy","tlsClientConfig":{"insecure":true}}`, Policy{},
			"config.tlsClientConfig.insecure: InsecureTLS; config.proxyUrl: Proxy; config.awsAuthConfig: AuthProvider"},
		{"too large", `{"bearerToken":"` + marker + `"}`, Policy{MaxSize: 8}, "Argo CD cluster Secret: Size"},
	}
}

func TestMalformedArgoCDIsRefused(t *testing.T) {
	for _, m := range malformedArgoCD() {
		t.Run(m.name, func(t *testing.T) {
			_, err := ParseArgoCD(argoCD(m.data), m.policy)
			if got := reasons(t, err); got != m.want {
				t.Errorf("refused for %q, want %q", got, m.want)
			}
		})
	}
	for server, want := range map[string]string{
		"": "server: is missing", "prod.example.com": "server: has no scheme", "http://prod.example.com": "server: PlainHTTP",
	} {
		data := argoCD(`{"bearerToken":"abc"}`)
		data["server"] = []byte(server)
		_, err := ParseArgoCD(data, Policy{})
		if got := reasons(t, err); got != want {
			t.Errorf("%q is refused for %q, want %q", server, got, want)
		}
	}
}

func TestArgoCDReportsUnknownFields(t *testing.T) {
	got, err := ParseArgoCD(argoCD(`{"bearerToken":"abc","newField":"`+marker+`","tlsClientConfig":{"alpn":["x"]}}`), Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"config.newField", "config.tlsClientConfig.alpn"}, got.Ignored); diff != "" {
		t.Error(diff)
	}
}

func TestFromTokenCA(t *testing.T) {
	got, err := FromTokenCA(" https://prod.example.com\n", []byte("abc\n"), []byte("# CA\n"+admin().cert), Policy{})
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Spec: Spec{Endpoint{Server: "https://prod.example.com", CAData: []byte(admin().cert)}, Auth{Token: NewSecret("abc")}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, test := range []struct{ server, token, ca, want string }{
		{"", "abc", "", "server: is missing"},
		{"prod.example.com", "abc", "", "server: has no scheme"},
		{"http://prod.example.com", "abc", "", "server: PlainHTTP"},
		{"https://u:p@prod.example.com", "abc", "", "server: URLCredentials"},
		{"https://prod.example.com", "", "", "token: holds no credential"},
		{"https://prod.example.com", " \n", "", "token: holds no credential"},
		{"https://prod.example.com", "a b", "", "token: has space, control or non-ASCII characters"},
		{"https://prod.example.com", "abc", marker, "ca: holds no PEM block of the right type"},
		{"https://prod.example.com", "abc", b64(admin().cert), "ca: is encoded in base64 twice"},
	} {
		_, err := FromTokenCA(test.server, []byte(test.token), []byte(test.ca), Policy{})
		if got := reasons(t, err); got != test.want {
			t.Errorf("%q %q %q: refused for %q, want %q", test.server, test.token, test.ca, got, test.want)
		}
	}
}
