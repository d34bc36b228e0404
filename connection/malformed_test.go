package connection

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"
)

// marker stands in every secret of the tests. It must not be seen anywhere.
const marker = "mArK3r-s3cr3t"

// everything is a policy that refuses next to nothing, so that all of the parsing behind it is reached.
func everything() Policy {
	return Policy{
		ExecCommands: []string{"/bin/plugin"}, ExecEnv: []string{"", "A", "B", "REGION", "TOKEN", "LD_PRELOAD"}, AllowInsecureTLS: true, AllowPlainHTTP: true, AllowFiles: true,
		AllowProxy: true, AllowURLCredentials: true, AllowBasicAuth: true, AllowImpersonation: true,
	}
}

// malformed is a kubeconfig that is refused, and why: "field: problem or rule".
type malformed struct {
	name   string
	data   string
	policy Policy
	want   string
}

const (
	plainServer = "server: https://prod.example.com:6443"
	plainUser   = "token: " + marker
	pluginStart = "exec:\n  command: /bin/plugin\n  apiVersion: client.authentication.k8s.io/v1\n  args: [" + marker + "]\n"
)

// malformedKubeconfigs are those of FACTS, section 4, and what else goes wrong in practice or on purpose.
func malformedKubeconfigs() []malformed {
	good := kubeconfig(plainServer, plainUser)
	cert, key := b64(admin().cert), b64(admin().key)
	cluster := func(lines string) string { return kubeconfig(lines, plainUser) }
	user := func(lines string) string { return kubeconfig(plainServer, lines) }
	replace := func(old, with string) string {
		if !strings.Contains(good, old) {
			panic("nothing to replace: " + old)
		}
		return strings.Replace(good, old, with, 1)
	}
	open := everything()
	return []malformed{
		// The document.
		{"empty", "", open, ": is empty"},
		{"only space", " \n\t\n", open, ": is empty"},
		{"only a comment", "# " + marker + "\n", open, ": is empty"},
		{"null", "null", open, ": is empty"},
		{"a scalar", marker, open, ": is not an object"},
		{"a list", "- " + marker, open, ": is not an object"},
		{"base64 twice", b64(good), open, ": is encoded in base64 twice"},
		{"base64 twice, of JSON", b64(`{"clusters":[]}`), open, ": is encoded in base64 twice"},
		{"broken quotes", replace("token: ", `token: "`), open, ": is neither YAML nor JSON"},
		{"a tab as indentation", replace("  context:", "\tcontext:"), open, ": is neither YAML nor JSON"},
		{"control characters", good + "\x00" + marker, open, ": is neither YAML nor JSON"},
		{"not UTF-8", replace(marker, marker+"\xff\xfe"), open, ": is neither YAML nor JSON"},
		{"cut off JSON", `{"users":[{"name":"admin","user":{"token":"` + marker, open, ": is neither YAML nor JSON"},
		{"second document", good + "---\ntoken: " + marker, open, ": has more than one document"},
		{"broken second document", good + "---\n{" + marker, open, ": has more than one document"},
		{"key twice", user("token: abc\ntoken: " + marker), open, ": has a key twice"},
		{"key twice at the top", good + "current-context: other", open, ": has a key twice"},
		{"key twice in an object with many keys", good + manyKeys(20) + "x3: " + marker, open, ": has a key twice"},
		{"key twice, quoted", cluster("server: https://a\n'server': https://" + marker), open, ": has a key twice"},
		{"an alias", user("username: &x " + marker + "\npassword: *x"), open, ": uses an alias, a merge key or a custom tag"},
		{"a merge key", user("<<: {token: " + marker + "}"), open, ": uses an alias, a merge key or a custom tag"},
		{"a custom tag", user("token: !vault " + marker), open, ": uses an alias, a merge key or a custom tag"},
		{"a binary tag", user("token: !!binary " + b64(marker)), open, ": uses an alias, a merge key or a custom tag"},
		{"a complex key", user("? [" + marker + "]\n: x"), open, ": has the wrong type"},
		{"another kind", replace("kind: Config", "kind: Secret"), open, "kind: is of another kind or version"},
		{"another version", replace("apiVersion: v1", "apiVersion: v2"), open, "apiVersion: is of another kind or version"},
		{"clusters not a list", "clusters: " + marker, open, "clusters: has the wrong type"},
		{"too large", good + "#" + strings.Repeat("x", DefaultMaxSize), open, "kubeconfig: Size"},

		// Contexts.
		{"no current context of two", replace("current-context: main", "") + "- name: second\n", open,
			"current-context: names no context, and there is not exactly one"},
		{"no context at all", "kind: Config", open, "current-context: names no context, and there is not exactly one"},
		{"dangling current context", replace("current-context: main", "current-context: gone"), open,
			"current-context: names something that does not exist"},
		{"context twice", good + "- {name: main, context: {}}", open, "current-context: names something that exists twice"},
		{"context of no cluster", replace("cluster: prod, ", ""), open, `contexts["main"].cluster: is missing`},
		{"context of no user", replace(", user: admin", ""), open, `contexts["main"].user: is missing`},
		{"dangling cluster", replace("cluster: prod", "cluster: gone"), open, `contexts["main"].cluster: names something that does not exist`},
		{"dangling user", replace("user: admin", "user: gone"), open, `contexts["main"].user: names something that does not exist`},
		{"context not an object", replace("{cluster: prod, user: admin}", marker), open, `contexts["main"]: has the wrong type`},
		{"cluster twice", replace("users:", "- {name: prod, cluster: {server: 'https://x'}}\nusers:"), open,
			`contexts["main"].cluster: names something that exists twice`},
		{"user twice", replace("contexts:", "- {name: admin, user: {token: "+marker+"}}\ncontexts:"), open,
			`contexts["main"].user: names something that exists twice`},

		// Servers.
		{"no server", cluster("tls-server-name: x"), open, `clusters["prod"].server: is missing`},
		{"empty server", cluster("server: ''"), open, `clusters["prod"].server: is missing`},
		{"server not a string", cluster("server: [" + marker + "]"), open, `clusters["prod"].server: has the wrong type`},
		{"no scheme", cluster("server: prod.example.com:6443"), open, `clusters["prod"].server: has no scheme`},
		{"another scheme", cluster("server: ftp://prod.example.com"), open, `clusters["prod"].server: has an unknown scheme`},
		{"no host", cluster("server: https:///" + marker), open, `clusters["prod"].server: is not a usable URL`},
		{"a query", cluster("server: https://prod.example.com?token=" + marker), open, `clusters["prod"].server: is not a usable URL`},
		{"a fragment", cluster("server: 'https://prod.example.com#" + marker + "'"), open, `clusters["prod"].server: is not a usable URL`},
		{"an empty fragment", cluster("server: 'https://prod.example.com#'"), open, `clusters["prod"].server: is not a usable URL`},
		{"dot segments", cluster("server: https://prod.example.com/a/../b"), open, `clusters["prod"].server: is not a usable URL`},
		{"port 0", cluster("server: https://prod.example.com:0"), open, `clusters["prod"].server: has a port that is no number from 1 to 65535`},
		{"port 65536", cluster("server: https://prod.example.com:65536"), open,
			`clusters["prod"].server: has a port that is no number from 1 to 65535`},
		{"an empty port", cluster("server: 'https://prod.example.com:'"), open,
			`clusters["prod"].server: has a port that is no number from 1 to 65535`},
		{"a port in letters", cluster("server: https://prod.example.com:" + marker), open, `clusters["prod"].server: is not a usable URL`},
		{"a password with bad escapes", cluster("server: https://u:%zz" + marker + "@prod.example.com"), open,
			`clusters["prod"].server: is not a usable URL`},
		{"host with an underscore", cluster("server: https://prod_1.example.com"), open, `clusters["prod"].server: Host`},
		{"host that is a number", cluster("server: https://2130706433"), open, `clusters["prod"].server: Host`},
		{"host that ends in a number", cluster("server: https://127.1"), open, `clusters["prod"].server: Host`},
		{"host in hexadecimal", cluster("server: https://0x7f000001"), open, `clusters["prod"].server: Host`},
		{"host with a zone", cluster("server: 'https://[fe80::1%25eth0]:6443'"), open, `clusters["prod"].server: Host`},
		{"credentials in the URL and a token", cluster("server: https://u:" + marker + "@prod.example.com"), open,
			`clusters["prod"].server: contradicts another field`},
		{"a user name in the URL", cluster("server: https://" + marker + "@prod.example.com"), open,
			`clusters["prod"].server: holds no credential`},
		{"insecure not a truth value", cluster(plainServer + "\ninsecure-skip-tls-verify: '" + marker + "'"), open,
			`clusters["prod"].insecure-skip-tls-verify: has the wrong type`},
		{"insecure and a CA", cluster(plainServer + "\ninsecure-skip-tls-verify: true\ncertificate-authority-data: " + cert), open,
			`clusters["prod"].insecure-skip-tls-verify: contradicts another field`},
		{"bad TLS server name", cluster(plainServer + "\ntls-server-name: a_b"), open,
			`clusters["prod"].tls-server-name: is neither an IP address nor a DNS name`},
		{"a proxy with a path", cluster(plainServer + "\nproxy-url: http://proxy/" + marker), open, `clusters["prod"].proxy-url: is not a usable URL`},
		{"a proxy of another scheme", cluster(plainServer + "\nproxy-url: ftp://u:" + marker + "@proxy"), open,
			`clusters["prod"].proxy-url: has an unknown scheme`},
		{"a proxy with a user name", cluster(plainServer + "\nproxy-url: http://" + marker + "@proxy"), open,
			`clusters["prod"].proxy-url: holds no credential`},

		// CAs.
		{"CA that is no base64", cluster(plainServer + "\ncertificate-authority-data: '" + marker + "'"), open,
			`clusters["prod"].certificate-authority-data: is not base64`},
		{"CA that is no PEM", cluster(plainServer + "\ncertificate-authority-data: " + b64(marker)), open,
			`clusters["prod"].certificate-authority-data: holds no PEM block of the right type`},
		{"CA in base64 twice", cluster(plainServer + "\ncertificate-authority-data: " + b64(cert)), open,
			`clusters["prod"].certificate-authority-data: is encoded in base64 twice`},
		{"CA that is a key", cluster(plainServer + "\ncertificate-authority-data: " + key), open,
			`clusters["prod"].certificate-authority-data: holds no PEM block of the right type`},
		{"CA cut off", cluster(plainServer + "\ncertificate-authority-data: " + b64(admin().cert+admin().cert[:100])), open,
			`clusters["prod"].certificate-authority-data: holds a PEM block that is cut off`},
		{"CA that is no certificate inside", cluster(plainServer + "\ncertificate-authority-data: " + b64(pemOf("CERTIFICATE", marker))), open,
			`clusters["prod"].certificate-authority-data: holds a certificate that does not parse`},

		// Users.
		{"token with a newline", user("token: \"" + marker + "\\nx\""), open, `users["admin"].token: has space, control or non-ASCII characters`},
		{"token with a space", user("token: " + marker + " x"), open, `users["admin"].token: has space, control or non-ASCII characters`},
		{"token beyond ASCII", user("token: " + marker + "ü"), open, `users["admin"].token: has space, control or non-ASCII characters`},
		{"token of space", user("token: '  '"), open, `users["admin"].token: holds no credential`},
		{"token in base64 twice", user("token: " + b64("eyJ."+marker+".x")), open, `users["admin"].token: is encoded in base64 twice`},
		{"token not a string", user("token: {" + marker + "}"), open, `users["admin"].token: has the wrong type`},
		{"empty token", user("token: ''"), open, `users["admin"]: holds no credential`},
		{"all credentials empty", user("token:\nclient-key-data: ''\npassword: ''"), open, `users["admin"]: holds no credential`},
		{"token and basic auth", user("token: " + marker + "\nusername: u\npassword: " + marker), open,
			`users["admin"].username: contradicts another field`},
		{"password without user name", user("password: " + marker), open, `users["admin"].username: holds no credential`},
		{"user name without password", user("username: u"), open, `users["admin"].username: holds no credential`},
		{"user name with a colon", user("username: 'u:v'\npassword: " + marker), open, `users["admin"].username: has a character that is not allowed`},
		{"certificate without key", user("client-certificate-data: " + cert), open, `users["admin"].client-key-data: is missing`},
		{"key without certificate", user("client-key-data: " + key), open, `users["admin"].client-certificate-data: is missing`},
		{"key of another certificate", user("client-certificate-data: " + cert + "\nclient-key-data: " + b64(other().key)), open,
			`users["admin"].client-key-data: does not belong to the client certificate`},
		{"key that is no key", user("client-certificate-data: " + cert + "\nclient-key-data: " + b64(pemOf("PRIVATE KEY", marker))), open,
			`users["admin"].client-key-data: holds a private key that does not parse`},
		{"key that is no PEM", user("client-certificate-data: " + cert + "\nclient-key-data: " + b64(marker)), open,
			`users["admin"].client-key-data: holds no PEM block of the right type`},
		{"key cut off", user("client-certificate-data: " + cert + "\nclient-key-data: " + b64(admin().key[:80])), open,
			`users["admin"].client-key-data: holds a PEM block that is cut off`},
		{"key in base64 twice", user("client-certificate-data: " + cert + "\nclient-key-data: " + b64(key)), open,
			`users["admin"].client-key-data: is encoded in base64 twice`},
		{"encrypted key", user("client-certificate-data: " + cert + "\nclient-key-data: " + b64(pemOf("ENCRYPTED PRIVATE KEY", marker))), open,
			`users["admin"].client-key-data: holds an encrypted private key`},
		{"key that is no base64", user("client-certificate-data: " + cert + "\nclient-key-data: '" + marker + "'"), open,
			`users["admin"].client-key-data: is not base64`},
		{"plugin not an object", user("exec: " + marker), open, `users["admin"].exec: Exec`},
		{"plugin without command", user("exec: {args: [" + marker + "]}"), open, `users["admin"].exec: Exec`},
		{"plugin without version", user("exec: {command: /bin/plugin, args: [" + marker + "]}"), open, `users["admin"].exec.apiVersion: is missing`},
		{"plugin of v1alpha1", user("exec: {command: /bin/plugin, apiVersion: client.authentication.k8s.io/v1alpha1}"), open,
			`users["admin"].exec.apiVersion: is not a supported version of the exec protocol`},
		{"plugin that wants a terminal", user(pluginStart + "  interactiveMode: Always"), open,
			`users["admin"].exec.interactiveMode: asks for a terminal`},
		{"plugin with another mode", user(pluginStart + "  interactiveMode: " + marker), open, `users["admin"].exec.interactiveMode: has the wrong type`},
		{"plugin with arguments that are none", user("exec: {command: /bin/plugin, args: " + marker + "}"), open, `users["admin"].exec.args: has the wrong type`},
		{"plugin with a variable without name", user(pluginStart + "  env: [{value: " + marker + "}]"), open,
			`users["admin"].exec.env: has a character that is not allowed`},
		{"plugin with LD_PRELOAD", user(pluginStart + "  env: [{name: LD_PRELOAD, value: " + marker + "}]"), open, `users["admin"].exec.env: ExecEnv`},
		{"plugin with a variable that is not allowed", user(pluginStart + "  env: [{name: AWS_CONFIG_FILE, value: " + marker + "}]"), open,
			`users["admin"].exec.env: ExecEnv`},
		{"plugin with an allowed variable in other letters", user(pluginStart + "  env: [{name: region, value: " + marker + "}]"), open,
			`users["admin"].exec.env: ExecEnv`},
		{"impersonating nobody", user("token: " + marker + "\nas: ''"), open, `users["admin"].as: is present but empty`},
		{"impersonating null", user("token: " + marker + "\nas:"), open, `users["admin"].as: is present but empty`},
		{"impersonating no groups", user("token: " + marker + "\nas: jane\nas-groups: []"), open, `users["admin"].as: is present but empty`},
		{"impersonating an empty group", user("token: " + marker + "\nas: jane\nas-groups: ['']"), open, `users["admin"].as: is present but empty`},
		{"impersonating an empty extra", user("token: " + marker + "\nas: jane\nas-user-extra: {}"), open, `users["admin"].as: is present but empty`},
		{"impersonating a group only", user("token: " + marker + "\nas-groups: [dev]"), open, `users["admin"].as: is missing`},
		{"impersonating two lines", user("token: " + marker + "\nas: \"a\\r\\nb\""), open, `users["admin"].as: has a character that is not allowed`},

		// Policy.
		{"plugin", user(pluginStart), Policy{}, `users["admin"].exec: Exec`},
		{"auth provider", user("auth-provider: {name: oidc, config: {id-token: " + marker + "}}"), open, `users["admin"].auth-provider: AuthProvider`},
		{"token file", user("tokenFile: /etc/canary"), Policy{}, `users["admin"].tokenFile: Files`},
		{"token file beside a token", user("token: " + marker + "\ntokenFile: /etc/x"), Policy{}, `users["admin"].tokenFile: Files`},
		{"certificate file", user("client-certificate: /etc/canary"), Policy{}, `users["admin"].client-certificate: Files`},
		{"key file", user("client-key: /etc/canary"), Policy{}, `users["admin"].client-key: Files`},
		{"CA file", cluster(plainServer + "\ncertificate-authority: /etc/canary"), Policy{}, `clusters["prod"].certificate-authority: Files`},
		{"insecure TLS", cluster(plainServer + "\ninsecure-skip-tls-verify: true"), Policy{}, `clusters["prod"].insecure-skip-tls-verify: InsecureTLS`},
		{"plain HTTP", cluster("server: http://prod.example.com"), Policy{}, `clusters["prod"].server: PlainHTTP`},
		{"plain HTTP in capitals", cluster("server: HTTP://prod.example.com"), Policy{}, `clusters["prod"].server: PlainHTTP`},
		{"credentials in the URL", cluster("server: https://u:" + marker + "@prod.example.com"), Policy{}, `clusters["prod"].server: URLCredentials`},
		{"credentials in a broken URL", cluster("server: https://u:%zz" + marker + "@prod.example.com"), Policy{}, `clusters["prod"].server: URLCredentials`},
		{"basic auth", user("username: u\npassword: " + marker), Policy{}, `users["admin"].username: BasicAuth`},
		{"proxy", cluster(plainServer + "\nproxy-url: http://u:" + marker + "@proxy"), Policy{},
			`clusters["prod"].proxy-url: Proxy; clusters["prod"].proxy-url: URLCredentials`},
		{"impersonation", user("token: " + marker + "\nas: jane"), Policy{}, `users["admin"].as: Impersonation`},
		{"empty impersonation", user("token: " + marker + "\nas: ''"), Policy{}, `users["admin"].as: Impersonation`},
		{"violations of an unused user", replace("contexts:", "- {name: ci, user: {tokenFile: /x, exec: {command: "+marker+"}}}\ncontexts:"), Policy{},
			`users["ci"].exec: Exec; users["ci"].tokenFile: Files`},
		{"violation of an unused cluster", replace("users:", "- {name: b, cluster: {server: 'http://"+strings.ToLower(marker)+"'}}\nusers:"), Policy{},
			`clusters["b"].server: PlainHTTP`},
		{"violation of an entry without name", replace("contexts:", "- {user: {auth-provider: {}}}\ncontexts:"), Policy{},
			`users[""].auth-provider: AuthProvider`},
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("x" + string(rune('0'+i%10)) + strings.Repeat("y", i/10) + ": 1\n")
	}
	return b.String()
}

func pemOf(block, content string) string {
	return "-----BEGIN " + block + "-----\n" + b64(content) + "\n-----END " + block + "-----\n"
}

// reasons returns what the errors of this package say, and fails for every other error.
func reasons(t *testing.T, err error) string {
	t.Helper()
	switch e := err.(type) {
	case nil:
		return ""
	case *ParseError:
		return e.Field + ": " + string(e.Problem)
	case *PolicyError:
		return e.Field + ": " + string(e.Rule)
	case *AccessError:
		if e.Err == nil {
			return string(e.Problem)
		}
		return reasons(t, e.Err)
	case *multierror.Error:
		var all []string
		for _, one := range e.Errors {
			all = append(all, reasons(t, one))
		}
		return strings.Join(all, "; ")
	}
	t.Fatalf("an error of another type: %T", err)
	return ""
}

func TestMalformedKubeconfigsAreRefused(t *testing.T) {
	for _, m := range malformedKubeconfigs() {
		t.Run(m.name, func(t *testing.T) {
			_, err := ParseKubeconfig(t.Context(), []byte(m.data), KubeconfigOptions{Policy: m.policy})
			if got := reasons(t, err); got != m.want {
				t.Errorf("refused for %q, want %q", got, m.want)
			}
		})
	}
}
