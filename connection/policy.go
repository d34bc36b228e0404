package connection

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultMaxSize is how large connection data, and each file that it refers to, may be: 1 MiB.
const DefaultMaxSize = 1 << 20

// Policy says which connections are accepted. The zero value is strict, and right for what others may
// write: Secrets and ClusterProfiles. [LocalFiles] is for kubeconfig files of the machine's own user.
//
// Policy is applied before anything is opened, executed or dialled, and to every entry of a kubeconfig, used
// or not, unless UsedEntriesOnly is set. References through the auth-provider mechanism are always refused.
//
// Host names are judged as they are written; they are not resolved.
//
// A Policy may be copied and used concurrently as long as nobody writes to its slices.
type Policy struct {
	// ExecCommands are the commands that may be run as credential plugins; none by default. A path must be
	// absolute, and matches a command that is the same path once both are cleaned (symbolic links are not
	// resolved). A bare name, such as "aws", allows exactly that name, which is then looked up in PATH when it
	// is run; list one only where PATH can be trusted.
	//
	// The arguments of an allowed command are those of whoever writes the data, whatever they make the command do:
	// do not list a command, such as a shell or an interpreter, that runs or fetches what its arguments say. Access
	// providers are not concerned, since the operator configures their commands.
	ExecCommands []string
	// ExecEnv are the names of the environment variables that data may set for a plugin; none by default. That holds
	// for what ClusterProfiles add to access providers, too, and not for what the operator configured there.
	// Names are compared as they are written. Those of [ReservedVariable] are refused even if they are listed.
	ExecEnv []string
	// AllowInsecureTLS accepts connections that do not verify the server.
	AllowInsecureTLS bool
	// AllowPlainHTTP accepts servers with the scheme http.
	AllowPlainHTTP bool
	// AllowFiles accepts references to files, which are then read: the CA, client certificate, key and token.
	AllowFiles bool
	// AllowProxy accepts a proxy URL.
	AllowProxy bool
	// AllowURLCredentials accepts user information in the URL of a server or proxy.
	AllowURLCredentials bool
	// AllowBasicAuth accepts a user name and password.
	AllowBasicAuth bool
	// AllowImpersonation accepts acting as somebody else.
	AllowImpersonation bool

	// DenyLoopback refuses servers and proxies at this machine: loopback and unspecified addresses, and names
	// of localhost.
	DenyLoopback bool
	// DenyLinkLocal refuses link-local and multicast addresses, and other addresses and names at which clouds serve
	// their metadata.
	DenyLinkLocal bool
	// DenyPrivate refuses private addresses: RFC 1918, RFC 4193 and RFC 6598.
	DenyPrivate bool
	// DenyHosts refuses servers and proxies at these hosts, each "host" or "host:port": names or addresses, for
	// instance those of the hub itself.
	DenyHosts []string
	// DenyNetworks refuses servers and proxies with an address in one of these networks. An IPv6 address that stands for
	// an IPv4 address (mapped or NAT64) is in the networks of both.
	DenyNetworks []netip.Prefix

	// MaxSize is how many bytes connection data may have; 0 means [DefaultMaxSize].
	MaxSize int
	// UsedEntriesOnly applies policy only to the clusters and users of the context in question. Without it, one
	// violation anywhere in a kubeconfig refuses all of it. Set it only for files whose writer is trusted.
	UsedEntriesOnly bool
	// Audit lets violations pass and reports them in [Result].Violations instead, for people who migrate.
	// Then plugins are run and files are read that policy would refuse, so it is not for data that others may
	// write. Three rules stand all the same, since no connection could come of it: [RuleAuthProvider],
	// [RuleHost] and [RuleSize].
	Audit bool
}

// LocalFiles returns the policy for kubeconfig files of the machine's own user: references to files, proxies
// and basic auth are accepted, and a violation refuses only the contexts that it concerns. Plugins, insecure
// TLS, plain HTTP, credentials in URLs and impersonation have still to be allowed.
func LocalFiles() Policy {
	return Policy{AllowFiles: true, AllowProxy: true, AllowBasicAuth: true, UsedEntriesOnly: true}
}

// Rule is the rule of a [Policy] that a connection violates: a stable word.
type Rule string

// The rules of a policy.
const (
	RuleExec           Rule = "Exec"           // a credential plugin that is not in ExecCommands
	RuleExecEnv        Rule = "ExecEnv"        // a variable for a credential plugin that is not in ExecEnv, or is reserved
	RuleAuthProvider   Rule = "AuthProvider"   // client-go's removed auth-provider mechanism, or Argo CD's awsAuthConfig
	RuleInsecureTLS    Rule = "InsecureTLS"    // the server is not verified
	RulePlainHTTP      Rule = "PlainHTTP"      // the connection is not encrypted
	RuleFiles          Rule = "Files"          // a reference to a file
	RuleProxy          Rule = "Proxy"          // a proxy URL
	RuleURLCredentials Rule = "URLCredentials" // user information in a URL
	RuleBasicAuth      Rule = "BasicAuth"      // user name and password
	RuleImpersonation  Rule = "Impersonation"  // acting as somebody else
	RuleHost           Rule = "Host"           // a host that is neither an IP address nor a DNS name
	RuleAddress        Rule = "Address"        // a host that the policy denies
	RuleSize           Rule = "Size"           // more data than MaxSize
)

func (r Rule) explain() string {
	switch r {
	case RuleExec:
		return "the command is not one of those allowed"
	case RuleExecEnv:
		return "a variable is reserved or not one of those allowed"
	case RuleAuthProvider:
		return "auth providers are never allowed"
	case RuleInsecureTLS:
		return "the server would not be verified"
	case RulePlainHTTP:
		return "plain HTTP is not allowed"
	case RuleFiles:
		return "references to files are not allowed"
	case RuleProxy:
		return "proxies are not allowed"
	case RuleURLCredentials:
		return "credentials in URLs are not allowed"
	case RuleBasicAuth:
		return "basic auth is not allowed"
	case RuleImpersonation:
		return "impersonation is not allowed"
	case RuleHost:
		return "the host is neither an IP address nor a DNS name"
	case RuleAddress:
		return "the host is denied"
	case RuleSize:
		return "there is too much data"
	}
	return "not allowed"
}

// PolicyError says that a policy refuses a connection. Several come as one error, in which errors.As finds
// the first, and which is a *multierror.Error of *PolicyErrors.
type PolicyError struct {
	// Field is the path of the field, such as users["admin"].exec.
	Field string
	// Rule is the rule that refuses it.
	Rule Rule
}

// Error says which field is refused by which rule.
func (e *PolicyError) Error() string {
	return "policy refuses " + e.Field + ": " + e.Rule.explain() + " (" + string(e.Rule) + ")"
}

// lasting reports whether the rule stands in audit mode, too.
func (r Rule) lasting() bool { return r == RuleAuthProvider || r == RuleHost || r == RuleSize }

// decide splits violations into an error and those that audit mode lets pass.
func (p Policy) decide(found []*PolicyError) (passed []*PolicyError, err error) {
	if !p.Audit {
		return nil, joined(found)
	}
	var refused []*PolicyError
	for _, v := range found {
		if v.Rule.lasting() {
			refused = append(refused, v)
		} else {
			passed = append(passed, v)
		}
	}
	return passed, joined(refused)
}

func (p Policy) maxSize() int {
	if p.MaxSize > 0 {
		return p.MaxSize
	}
	return DefaultMaxSize
}

// checkSize returns an error if data is larger than allowed.
func (p Policy) checkSize(object string, size int) error {
	if size <= p.maxSize() {
		return nil
	}
	return &PolicyError{Field: object, Rule: RuleSize}
}

// checkCluster appends what is wrong with a cluster entry to found.
func (p Policy) checkCluster(c *rawCluster, found []*PolicyError) []*PolicyError {
	refuse := func(field string, rule Rule) { found = append(found, &PolicyError{Field: c.field(field), Rule: rule}) }
	if c.insecure && !p.AllowInsecureTLS {
		refuse(c.names.insecure, RuleInsecureTLS)
	}
	if c.caFile != "" && !p.AllowFiles {
		refuse(c.names.caFile, RuleFiles)
	}
	if c.server.scheme == "http" && !p.AllowPlainHTTP {
		refuse(c.names.server, RulePlainHTTP)
	}
	checkURL := func(field string, u *address) {
		if u.hasUser && !p.AllowURLCredentials {
			refuse(field, RuleURLCredentials)
		}
		if u.badHost {
			refuse(field, RuleHost)
		} else if p.deniesHost(u) {
			refuse(field, RuleAddress)
		}
	}
	checkURL(c.names.server, &c.server)
	if c.hasProxy {
		if !p.AllowProxy {
			refuse(c.names.proxy, RuleProxy)
		}
		checkURL(c.names.proxy, &c.proxy)
	}
	return found
}

// checkUser appends what is wrong with a user entry to found.
func (p Policy) checkUser(u *rawUser, found []*PolicyError) []*PolicyError {
	refuse := func(field string, rule Rule) { found = append(found, &PolicyError{Field: u.field(field), Rule: rule}) }
	if u.authProvider != "" {
		refuse(u.authProvider, RuleAuthProvider)
	}
	if u.exec != nil {
		if !u.exec.configured && !p.allowsExec(u.exec.command) {
			refuse(u.names.exec, RuleExec)
		}
		if slices.ContainsFunc(u.exec.env, func(v EnvVar) bool { return v.Configured == u.exec.configured && !p.allowsVariable(v) }) {
			refuse(u.names.exec+".env", RuleExecEnv)
		}
	}
	if !p.AllowFiles {
		for field, path := range u.files() {
			if path != "" {
				refuse(field, RuleFiles)
			}
		}
	}
	if (u.username != "" || u.password != "") && !p.AllowBasicAuth {
		refuse(u.names.basic, RuleBasicAuth)
	}
	if u.impersonates && !p.AllowImpersonation {
		refuse("as", RuleImpersonation)
	}
	return found
}

func (p Policy) allowsExec(command string) bool {
	if command == "" || command == "." || command == ".." {
		return false // no command
	}
	bare := !strings.ContainsRune(command, filepath.Separator)
	return slices.ContainsFunc(p.ExecCommands, func(allowed string) bool {
		if bare {
			return allowed == command
		}
		return filepath.IsAbs(allowed) && filepath.IsAbs(command) && filepath.Clean(allowed) == filepath.Clean(command)
	})
}

// allowsVariable reports whether a plugin may get the variable.
func (p Policy) allowsVariable(v EnvVar) bool {
	if v.Configured {
		return !strings.EqualFold(v.Name, execInfoVariable)
	}
	return !ReservedVariable(v.Name) && slices.Contains(p.ExecEnv, v.Name)
}

// deniesHost reports whether the options about addresses deny a URL's host.
func (p Policy) deniesHost(u *address) bool {
	if u.host == "" {
		return false
	}
	if p.DenyLoopback && u.loopback() || p.DenyLinkLocal && u.linkLocal() || p.DenyPrivate && u.private() {
		return true
	}
	return slices.ContainsFunc(p.DenyNetworks, u.within) || slices.ContainsFunc(p.DenyHosts, u.is)
}
