package connection

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

// accessConfig is what an operator configures: two providers, of which the first takes additions by profiles.
func accessConfig() *access.Config {
	return access.New([]access.Provider{
		{
			Name: "generous",
			ExecConfig: &clientcmdapi.ExecConfig{
				Command: "/bin/generous", Args: make([]string, 1, 64), APIVersion: execV1, ProvideClusterInfo: true,
				Env: []clientcmdapi.ExecEnvVar{{Name: "MODE", Value: "configured"}, {Name: "HOME", Value: "/tmp"}},
			},
			ProfileSourcedCLIArgsPolicy: access.ProfileSourcedCLIArgsPolicyAppend,
			ProfileSourcedEnvVarsPolicy: access.ProfileSourcedEnvVarsPolicyReplace,
		},
		{
			Name: "plain",
			ExecConfig: &clientcmdapi.ExecConfig{
				Command: "/bin/plain", APIVersion: execV1beta1,
				Env: []clientcmdapi.ExecEnvVar{{Name: "B", Value: "b"}, {Name: "A", Value: "a"}},
			},
		},
		{
			Name:                        "modest",
			ExecConfig:                  &clientcmdapi.ExecConfig{Command: "/bin/modest", APIVersion: execV1, Env: []clientcmdapi.ExecEnvVar{{Name: "MODE", Value: "configured"}}},
			ProfileSourcedEnvVarsPolicy: access.ProfileSourcedEnvVarsPolicyAppendIfNotExists,
		},
	})
}

func extension(name, json string) clientcmdv1.NamedExtension {
	x := clientcmdv1.NamedExtension{Name: name}
	if json != "" {
		x.Extension.Raw = []byte(json)
	}
	return x
}

func offer(name string, cluster clientcmdv1.Cluster) v1alpha1.AccessProvider {
	if cluster.Server == "" {
		cluster.Server = "https://prod.example.com"
	}
	return v1alpha1.AccessProvider{Name: name, Cluster: cluster}
}

func profile(offers ...v1alpha1.AccessProvider) *v1alpha1.ClusterProfile {
	p := new(v1alpha1.ClusterProfile)
	p.Status.AccessProviders = offers
	return p
}

func TestAccessProviderKeepsEveryField(t *testing.T) {
	got, err := ParseAccessProvider(accessConfig(), profile(offer("generous", clientcmdv1.Cluster{
		Server: "https://proxy.example.com:9092/cluster1", TLSServerName: "api.internal", ProxyURL: "http://proxy.example.com",
		CertificateAuthorityData: []byte(admin().cert), DisableCompression: true,
		Extensions: []clientcmdv1.NamedExtension{
			extension(execExtension, `{"clusterName":"cluster1"}`),
			extension(additionalArgsExtension, `["--cluster", "c1"]`),
			extension(additionalEnvsExtension, `{"MODE": "profile", "ZONE": "z", "AREA": "a"}`),
			extension("of.others", `[null]`),
		},
	})), Policy{AllowProxy: true, ExecEnv: []string{"AREA", "MODE", "ZONE"}})
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Name: "generous", Spec: Spec{
		Endpoint: Endpoint{
			Server: "https://proxy.example.com:9092/cluster1", CAData: []byte(admin().cert), TLSServerName: "api.internal",
			Proxy: Proxy{URL: "http://proxy.example.com"}, DisableCompression: true,
		},
		Auth: Auth{Exec: &Exec{
			Command: "/bin/generous", Args: []Secret{{}, NewSecret("--cluster"), NewSecret("c1")}, APIVersion: execV1, ProvideClusterInfo: true,
			Env: []EnvVar{
				{"AREA", NewSecret("a"), false}, {"HOME", NewSecret("/tmp"), true}, {"MODE", NewSecret("profile"), false}, {"ZONE", NewSecret("z"), false},
			},
			ClusterConfig: NewSecret(`{"clusterName":"cluster1"}`),
		}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAccessProviderPolicies(t *testing.T) {
	additions := clientcmdv1.Cluster{Extensions: []clientcmdv1.NamedExtension{
		extension(additionalArgsExtension, `["--more"]`), extension(additionalEnvsExtension, `{"MODE": "profile", "MORE": "m"}`),
	}}
	for provider, want := range map[string]Exec{
		"plain": {Command: "/bin/plain", APIVersion: execV1beta1, Env: []EnvVar{{"B", NewSecret("b"), true}, {"A", NewSecret("a"), true}}},
		"modest": {Command: "/bin/modest", APIVersion: execV1,
			Env: []EnvVar{{"MODE", NewSecret("configured"), true}, {"MORE", NewSecret("m"), false}}},
	} {
		got, err := ParseAccessProvider(accessConfig(), profile(offer(provider, additions)), Policy{ExecEnv: []string{"MORE"}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got.Spec.Auth.Exec); diff != "" {
			t.Errorf("%s: %s", provider, diff)
		}
	}
}

func TestAccessProviderChoice(t *testing.T) {
	server := func(name string) clientcmdv1.Cluster { return clientcmdv1.Cluster{Server: "https://" + name} }
	both := profile(offer("plain", server("new")))
	both.Status.CredentialProviders = []v1alpha1.CredentialProvider{offer("generous", server("deprecated")), offer("plain", server("old"))}
	merged := profile(offer("plain", server("new")))
	merged.Status.CredentialProviders = []v1alpha1.CredentialProvider{offer("plain", server("old"))}
	for _, test := range []struct {
		name    string
		profile *v1alpha1.ClusterProfile
		want    string
	}{
		{"the first that is configured", profile(offer("plain", server("b")), offer("generous", server("a"))), "generous https://a"},
		{"deprecated ones count", both, "generous https://deprecated"},
		{"of equal names the new one wins", merged, "plain https://new"},
	} {
		got, err := ParseAccessProvider(accessConfig(), test.profile, Policy{})
		if got := got.Name + " " + got.Spec.Endpoint.Server; err != nil || got != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

func TestNoAccess(t *testing.T) {
	for _, test := range []struct {
		name    string
		config  *access.Config
		profile *v1alpha1.ClusterProfile
		want    AccessError
		text    string
	}{
		{"nothing offered", accessConfig(), profile(), AccessError{Problem: AccessNotOffered}, "the ClusterProfile lists no access provider"},
		{"nothing configured", nil, profile(offer("x", clientcmdv1.Cluster{})), AccessError{Problem: AccessNotMatched, Have: []string{"x"}},
			`no matching access provider: the ClusterProfile lists ["x"], configured are []`},
		{"no match", accessConfig(), profile(offer("y", clientcmdv1.Cluster{}), offer("x", clientcmdv1.Cluster{})),
			AccessError{Problem: AccessNotMatched, Have: []string{"x", "y"}, Want: []string{"generous", "plain", "modest"}},
			`no matching access provider: the ClusterProfile lists ["x" "y"], configured are ["generous" "plain" "modest"]`},
	} {
		_, err := ParseAccessProvider(test.config, test.profile, Policy{})
		got, ok := err.(*AccessError)
		if !ok {
			t.Fatalf("%s: got %v", test.name, err)
		}
		if diff := cmp.Diff(&test.want, got); diff != "" || err.Error() != test.text {
			t.Errorf("%s: %q %s", test.name, err, diff)
		}
	}
}

func TestWhatIsOfferedIsToldBounded(t *testing.T) {
	var offers []v1alpha1.AccessProvider
	for i := range 1000 {
		offers = append(offers, offer(fmt.Sprint(i)+strings.Repeat("x", 1000), clientcmdv1.Cluster{}))
	}
	_, err := ParseAccessProvider(accessConfig(), profile(offers...), Policy{})
	if text := err.Error(); len(text) > 10_000 || !strings.Contains(text, "and 968 more") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
}

func TestInvalidAccess(t *testing.T) {
	generous := func(x ...clientcmdv1.NamedExtension) *v1alpha1.ClusterProfile {
		return profile(offer("generous", clientcmdv1.Cluster{Extensions: x}))
	}
	misconfigured := func(p access.Provider) *access.Config {
		p.Name = "generous"
		return access.New([]access.Provider{p})
	}
	empty := v1alpha1.AccessProvider{Name: "generous"}
	const extensions = `accessProviders["generous"].cluster.extensions`
	for _, test := range []struct {
		name    string
		config  *access.Config
		profile *v1alpha1.ClusterProfile
		want    string
	}{
		{"no server", accessConfig(), profile(empty), `accessProviders["generous"].cluster.server: is missing`},
		{"no scheme", accessConfig(), profile(offer("generous", clientcmdv1.Cluster{Server: "x"})), `accessProviders["generous"].cluster.server: has no scheme`},
		{"plain HTTP", accessConfig(), profile(offer("generous", clientcmdv1.Cluster{Server: "http://x"})), `accessProviders["generous"].cluster.server: PlainHTTP`},
		{"insecure", accessConfig(), profile(offer("generous", clientcmdv1.Cluster{InsecureSkipTLSVerify: true})),
			`accessProviders["generous"].cluster.insecure-skip-tls-verify: InsecureTLS`},
		{"a CA's path", accessConfig(), profile(offer("generous", clientcmdv1.Cluster{CertificateAuthority: "/x"})),
			`accessProviders["generous"].cluster.certificate-authority: Files`},
		{"a bad CA", accessConfig(), profile(offer("generous", clientcmdv1.Cluster{CertificateAuthorityData: []byte(marker)})),
			`accessProviders["generous"].cluster.certificate-authority-data: holds no PEM block of the right type`},
		{"a proxy", accessConfig(), profile(offer("generous", clientcmdv1.Cluster{ProxyURL: "http://proxy"})), `accessProviders["generous"].cluster.proxy-url: Proxy`},
		{"too large", accessConfig(), generous(extension("x", strings.Repeat(" ", DefaultMaxSize))), `accessProviders["generous"]: Size`},
		{"args not a list", accessConfig(), generous(extension(additionalArgsExtension, `{"a":"`+marker+`"}`)),
			extensions + "[" + additionalArgsExtension + "]: has the wrong type"},
		{"args with null", accessConfig(), generous(extension(additionalArgsExtension, `["a", null]`)),
			extensions + "[" + additionalArgsExtension + "]: has the wrong type"},
		{"args not JSON", accessConfig(), generous(extension(additionalArgsExtension, `[`+marker)),
			extensions + "[" + additionalArgsExtension + "]: is neither YAML nor JSON"},
		{"args twice", accessConfig(), generous(extension(additionalArgsExtension, `[]`), extension(additionalArgsExtension, `[]`)),
			extensions + "[" + additionalArgsExtension + "]: names something that exists twice"},
		{"env with numbers", accessConfig(), generous(extension(additionalEnvsExtension, `{"A": 1}`)),
			extensions + "[" + additionalEnvsExtension + "]: has the wrong type"},
		{"env with null", accessConfig(), generous(extension(additionalEnvsExtension, `{"A": null}`)),
			extensions + "[" + additionalEnvsExtension + "]: has the wrong type"},
		{"env with a bad name", accessConfig(), generous(extension(additionalEnvsExtension, `{"A=B": "`+marker+`"}`)),
			extensions + "[" + additionalEnvsExtension + "]: has the wrong type"},
		{"env with LD_PRELOAD", accessConfig(), generous(extension(additionalEnvsExtension, `{"LD_PRELOAD": "`+marker+`"}`)),
			extensions + "[" + additionalEnvsExtension + "]: ExecEnv"},
		{"env with PATH and HOME", accessConfig(), generous(extension(additionalEnvsExtension, `{"PATH": "`+marker+`", "HOME": "x"}`)),
			extensions + "[" + additionalEnvsExtension + "]: ExecEnv"},
		{"env with a variable that is not allowed", accessConfig(), generous(extension(additionalEnvsExtension, `{"AWS_CONFIG_FILE": "`+marker+`"}`)),
			extensions + "[" + additionalEnvsExtension + "]: ExecEnv"},
		{"env that replaces a configured variable", accessConfig(), generous(extension(additionalEnvsExtension, `{"MODE": "`+marker+`"}`)),
			extensions + "[" + additionalEnvsExtension + "]: ExecEnv"},
		{"a plugin with the request", misconfigured(access.Provider{ExecConfig: &clientcmdapi.ExecConfig{
			Command: "/x", APIVersion: execV1, Env: []clientcmdapi.ExecEnvVar{{Name: "KUBERNETES_EXEC_INFO", Value: marker}}}}), generous(),
			`providers["generous"].execConfig.env: ExecEnv`},
		{"a provider without plugin", misconfigured(access.Provider{}), generous(), `providers["generous"].execConfig: is missing`},
		{"a plugin without version", misconfigured(access.Provider{ExecConfig: &clientcmdapi.ExecConfig{Command: "/x"}}), generous(),
			`providers["generous"].execConfig.apiVersion: is missing`},
		{"a plugin with a relative path", misconfigured(access.Provider{ExecConfig: &clientcmdapi.ExecConfig{Command: "./x", APIVersion: execV1}}), generous(),
			`providers["generous"].execConfig.command: is a relative path, and there is no folder to resolve it against`},
		{"an unknown policy for args", misconfigured(access.Provider{ProfileSourcedCLIArgsPolicy: marker, ExecConfig: &clientcmdapi.ExecConfig{}}), generous(),
			`providers["generous"].profileSourcedCLIArgsPolicy: has the wrong type`},
		{"an unknown policy for env", misconfigured(access.Provider{ProfileSourcedEnvVarsPolicy: marker, ExecConfig: &clientcmdapi.ExecConfig{}}), generous(),
			`providers["generous"].profileSourcedEnvVarsPolicy: has the wrong type`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseAccessProvider(test.config, test.profile, Policy{})
			if got := reasons(t, err); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, marker) {
				t.Errorf("the error shows a value: %s", text)
			}
		})
	}
}

func TestExtensionsOfNullAreNone(t *testing.T) {
	for _, null := range []string{"", "null", " null", "null\n", "\t\r\n null \n", " \n"} {
		got, err := ParseAccessProvider(accessConfig(), profile(offer("generous", clientcmdv1.Cluster{Extensions: []clientcmdv1.NamedExtension{
			extension(additionalEnvsExtension, null), extension(additionalArgsExtension, null), extension(execExtension, null),
		}})), Policy{})
		if err != nil {
			t.Fatal(err)
		}
		exec := got.Spec.Auth.Exec
		if len(exec.Args) != 1 || len(exec.Env) != 2 || !exec.ClusterConfig.IsZero() {
			t.Errorf("%q: %s", null, exec)
		}
	}
}

// TestProfilesDoNotReachEachOther builds two profiles with additions again and again, all at once, from one
// configuration: what comes out depends on the profile alone.
func TestProfilesDoNotReachEachOther(t *testing.T) {
	config, untouched := accessConfig(), accessConfig()
	profiles := make([]*v1alpha1.ClusterProfile, 2)
	want := make([]Result, 2)
	policy := Policy{ExecEnv: []string{"CLUSTER", "ONLY_0", "ONLY_1", "MODE"}}
	for i := range profiles {
		profiles[i] = profile(offer("generous", clientcmdv1.Cluster{Extensions: []clientcmdv1.NamedExtension{
			extension(additionalArgsExtension, fmt.Sprintf(`["--cluster=c%d"]`, i)),
			extension(additionalEnvsExtension, fmt.Sprintf(`{"CLUSTER":"c%d","ONLY_%d":"x","MODE":"m%d"}`, i, i, i)),
			extension(execExtension, fmt.Sprintf(`{"clusterName":"c%d"}`, i)),
		}}))
		var err error
		if want[i], err = ParseAccessProvider(accessConfig(), profiles[i].DeepCopy(), policy); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 250 {
				i := n % 2
				got, err := ParseAccessProvider(config, profiles[i], policy)
				if err != nil || !got.Spec.Equal(want[i].Spec) || got.Spec.AuthFingerprint() != want[i].Spec.AuthFingerprint() {
					t.Errorf("profile %d, built again: %v, %v", i, got.Spec, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(untouched, config); diff != "" {
		t.Error("the configuration was changed:", diff)
	}
	if extra := config.Providers[0].ExecConfig.Args[:2][1]; extra != "" {
		t.Errorf("something was written behind the configured arguments: %q", extra)
	}
}
