package connection

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPolicyDeniesAddresses(t *testing.T) {
	loopback, linkLocal, private := Policy{DenyLoopback: true}, Policy{DenyLinkLocal: true}, Policy{DenyPrivate: true}
	hosts := Policy{DenyHosts: []string{"hub.example.com", "Other.Example.com.:6443", "192.0.2.7", "[2001:db8::7]:443", "2001:db8::8"}}
	networks := Policy{DenyNetworks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}}
	translated := Policy{DenyNetworks: []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::ffff:10.0.0.0/104")}}
	for _, test := range []struct {
		server string
		policy Policy
		denied bool
	}{
		{"https://127.0.0.1:6443", Policy{}, false},
		{"https://localhost", Policy{}, false},
		{"https://127.0.0.1:6443", loopback, true},
		{"https://127.9.9.9", loopback, true},
		{"https://[::1]", loopback, true},
		{"https://[::ffff:127.0.0.1]", loopback, true},
		{"https://[64:ff9b::7f00:1]", loopback, true},
		{"https://0.0.0.0", loopback, true},
		{"https://0.1.2.3", loopback, true},
		{"https://[::]", loopback, true},
		{"https://LocalHost", loopback, true},
		{"https://localhost.", loopback, true},
		{"https://api.localhost", loopback, true},
		{"https://localhost.example.com", loopback, false},
		{"https://10.0.0.1", loopback, false},
		{"https://169.254.169.254", linkLocal, true},
		{"https://[fe80::1]", linkLocal, true},
		{"https://[::ffff:169.254.169.254]", linkLocal, true},
		{"https://224.0.0.1", linkLocal, true},
		{"https://metadata.google.internal", linkLocal, true},
		{"https://10.0.0.1", linkLocal, false},
		{"https://10.0.0.1", private, true},
		{"https://172.31.0.1", private, true},
		{"https://192.168.0.1", private, true},
		{"https://100.64.0.1", private, true},
		{"https://100.128.0.1", private, false},
		{"https://[fd00::1]", private, true},
		{"https://192.0.2.1", private, false},
		{"https://prod.example.com", private, false},
		{"https://hub.example.com", hosts, true},
		{"https://HUB.example.com.:6443", hosts, true},
		{"https://other.example.com:6443", hosts, true},
		{"https://other.example.com", hosts, false},
		{"https://192.0.2.7:1", hosts, true},
		{"https://[::ffff:192.0.2.7]", hosts, true},
		{"https://[2001:db8::7]", hosts, true},
		{"https://[2001:db8:0::7]:0443", hosts, true},
		{"https://[2001:db8::7]:6443", hosts, false},
		{"https://[2001:db8::8]:6443", hosts, true},
		{"https://prod.example.com", hosts, false},
		{"https://192.0.2.9", networks, true},
		{"https://[2001:db8::9]", networks, true},
		{"https://192.0.3.9", networks, false},
		{"https://[::ffff:192.0.2.9]", networks, true},
		{"https://[64:ff9b::192.0.2.9]", networks, true},
		{"https://[64:ff9b::192.0.3.9]", networks, false},
		{"https://[64:ff9b::192.0.3.9]", translated, true},
		{"https://192.0.3.9", translated, false},
		{"https://10.1.2.3", translated, true},
		{"https://[::ffff:10.1.2.3]", translated, true},
		{"https://11.1.2.3", translated, false},
		{"https://localhost4", loopback, true},
		{"https://localhost6.localdomain6", loopback, true},
		{"https://localhost.localdomain", loopback, true},
		{"https://[fd00:ec2::254]", linkLocal, true},
		{"https://[fd20:ce::254]", linkLocal, true},
		{"https://100.100.100.200", linkLocal, true},
		{"https://metadata", linkLocal, true},
		{"https://Metadata.goog.", linkLocal, true},
		{"https://metadata.example.com", linkLocal, false},
	} {
		t.Run(test.server, func(t *testing.T) {
			_, err := FromTokenCA(test.server, []byte("abc"), nil, test.policy)
			want := ""
			if test.denied {
				want = "server: Address"
			}
			if got := reasons(t, err); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestPolicyDeniesAddressesOfProxies(t *testing.T) {
	data := kubeconfig(plainServer+"\nproxy-url: socks5://127.0.0.1", "token: abc")
	for _, policy := range []Policy{{AllowProxy: true, DenyLoopback: true}, {AllowProxy: true, DenyHosts: []string{"127.0.0.1:1080"}}} {
		_, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: policy})
		if got, want := reasons(t, err), `clusters["prod"].proxy-url: Address`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPolicyAllowsCommands(t *testing.T) {
	for _, test := range []struct {
		allowed, command, dir string
		ok                    bool
	}{
		{allowed: "/bin/plugin", command: "/bin/plugin", ok: true},
		{allowed: "/bin/plugin", command: "/bin/../bin/./plugin", ok: true},
		{allowed: "/bin//plugin", command: "/bin/plugin", ok: true},
		{allowed: "/bin/plugin", command: "plugin"},
		{allowed: "/bin/plugin", command: "/bin/plugin2"},
		{allowed: "/bin/plugin", command: "/bin/plugin/../sh"},
		{allowed: "/bin", command: "/bin/plugin"},
		{allowed: "plugin", command: "plugin", ok: true},
		{allowed: "plugin", command: "./plugin"},
		{allowed: "plugin", command: "/bin/plugin"},
		{allowed: "./plugin", command: "./plugin"},
		{allowed: "/etc/plugin", command: "./plugin", dir: "/etc", ok: true},
		{allowed: "/etc/plugin", command: "sub/../plugin", dir: "/etc", ok: true},
		{allowed: "/etc/plugin", command: "../plugin", dir: "/etc"},
		{allowed: "plugin", command: "plugin", dir: "/etc", ok: true},
		{allowed: "/etc/plugin", command: "plugin", dir: "/etc"},
		{allowed: "", command: ""},
		{allowed: ".", command: "."},
	} {
		t.Run(test.allowed+" for "+test.command, func(t *testing.T) {
			data := kubeconfig(plainServer, "exec: {apiVersion: "+execV1+", command: '"+test.command+"'}")
			_, err := ParseKubeconfig(t.Context(), []byte(data),
				KubeconfigOptions{Dir: test.dir, Policy: Policy{ExecCommands: []string{test.allowed}}})
			var refusal *PolicyError
			if refused := errors.As(err, &refusal) && refusal.Rule == RuleExec; refused == test.ok || test.ok && err != nil {
				t.Errorf("allowed %t, want %t: %v", !refused, test.ok, err)
			}
		})
	}
}

func TestAuditReportsWhatItLetsPass(t *testing.T) {
	data := kubeconfig("server: http://prod.example.com", "exec: {command: /bin/other, apiVersion: "+execV1+"}\nas: jane")
	got, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: Policy{Audit: true}})
	if err != nil {
		t.Fatal(err)
	}
	want := []*PolicyError{
		{`clusters["prod"].server`, RulePlainHTTP}, {`users["admin"].exec`, RuleExec}, {`users["admin"].as`, RuleImpersonation},
	}
	if diff := cmp.Diff(want, got.Violations); diff != "" {
		t.Error(diff)
	}
	if got.Spec.Endpoint.Server != "http://prod.example.com" || got.Spec.Auth.Exec == nil || got.Spec.Auth.Impersonate.UserName != "jane" {
		t.Errorf("not let pass: %s", got.Spec)
	}
}

func TestAuditLetsNothingUnusablePass(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		want string
	}{
		"auth provider": {kubeconfig(plainServer, "auth-provider: {name: gcp}"), `users["admin"].auth-provider: AuthProvider`},
		"host":          {kubeconfig("server: https://127.1", "token: abc"), `clusters["prod"].server: Host`},
		"size":          {kubeconfig(plainServer, "token: abc") + "# too large by far for this policy", "kubeconfig: Size"},
	} {
		policy := Policy{Audit: true}
		if name == "size" {
			policy.MaxSize = 64
		}
		_, err := ParseKubeconfig(t.Context(), []byte(test.data), KubeconfigOptions{Policy: policy})
		if got := reasons(t, err); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestEveryRuleIsExplained(t *testing.T) {
	seen := make(map[string]Rule)
	for _, rule := range []Rule{
		RuleExec, RuleExecEnv, RuleAuthProvider, RuleInsecureTLS, RulePlainHTTP, RuleFiles, RuleProxy, RuleURLCredentials,
		RuleBasicAuth, RuleImpersonation, RuleHost, RuleAddress, RuleSize,
	} {
		text := rule.explain()
		if previous, ok := seen[text]; ok || text == Rule("").explain() {
			t.Errorf("%s is explained as %q, like %q", rule, text, previous)
		}
		seen[text] = rule
	}
}

func TestHostNames(t *testing.T) {
	for host, good := range map[string]bool{
		"a": true, "a-b.c1": true, "1a.example.com": true, "xn--bcher-kva.example": true, "a.example.": true,
		"": false, ".": false, "a..b": false, "-a": false, "a-": false, "a_b": false, "a b": false, "ü": false, "a/b": false,
		"1": false, "0x1": false, "a.0x1f": false, "a.1": false, "99999999999999999999999": false, "a\n": false,
		"1234567890123456789012345678901234567890123456789012345678901234": false,
	} {
		if _, bad := parseHost(host); bad == good {
			t.Errorf("%q: good %t, want %t", host, !bad, good)
		}
	}
}
