package connection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

const (
	accessObject = "access provider"

	// Extensions by which a ClusterProfile adds to a plugin's arguments and environment (KEP-5339).
	additionalArgsExtension = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
	additionalEnvsExtension = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"
)

// AccessProblem says why a ClusterProfile gives no access.
type AccessProblem string

const (
	// AccessNotOffered: the profile lists no access provider (yet).
	AccessNotOffered AccessProblem = "NotOffered"
	// AccessNotMatched: the profile lists access providers, none of which is configured.
	AccessNotMatched AccessProblem = "NotMatched"
	// AccessInvalid: the matching access provider, or its configuration, cannot be used; Err says which field.
	AccessInvalid AccessProblem = "Invalid"
)

// AccessError says why a ClusterProfile gives no access.
type AccessError struct {
	Problem AccessProblem
	// Have are the names of the access providers that the profile lists, and Want those that are configured. Both are
	// cut where they are many or long, as a profile's can be, and say so.
	Have, Want []string
	// Err is a [*ParseError] for AccessInvalid, else nil.
	Err error
}

// Error says what is wrong.
func (e *AccessError) Error() string {
	switch e.Problem {
	case AccessNotOffered:
		return "the ClusterProfile lists no access provider"
	case AccessNotMatched:
		return fmt.Sprintf("no matching access provider: the ClusterProfile lists %q, configured are %q", e.Have, e.Want)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *AccessError) Unwrap() error { return e.Err }

// ParseAccessProvider makes a connection of what a ClusterProfile tells about access (KEP-5339, KEP-4322) and of the
// configured access providers. The profile's accessProviders and its deprecated credentialProviders both count; of
// equal names, accessProviders' wins. Of the configured providers, the first that the profile lists is used.
//
// The plugin's command comes from the configuration, which the operator writes, so that [Policy].ExecCommands does
// not apply. The arguments and environment variables that the profile adds count only as far as the provider's policies for
// them say, by default not at all; the variables must be in [Policy].ExecEnv as well ([RuleExecEnv]). Policy
// looks at the used access provider alone: the others are meant for other consumers.
//
// Errors are a [*AccessError], or one or several [*PolicyError]s. Neither argument is changed, and both may be
// used by several calls at once.
func ParseAccessProvider(config *access.Config, profile *v1alpha1.ClusterProfile, policy Policy) (Result, error) {
	provider, offered, err := match(config, profile)
	if err != nil {
		return Result{}, err
	}
	r, err := parseAccess(provider, offered, policy)
	if failure := new(ParseError); errors.As(err, &failure) {
		err = &AccessError{Problem: AccessInvalid, Err: failure}
	}
	return r, err
}

// match returns the provider to use, as it is configured and as the profile offers it.
func match(config *access.Config, profile *v1alpha1.ClusterProfile) (*access.Provider, *clientcmdv1.Cluster, error) {
	offered := make(map[string]*clientcmdv1.Cluster)
	for i := range profile.Status.CredentialProviders {
		p := &profile.Status.CredentialProviders[i]
		offered[p.Name] = &p.Cluster
	}
	for i := range profile.Status.AccessProviders {
		p := &profile.Status.AccessProviders[i]
		offered[p.Name] = &p.Cluster
	}
	if len(offered) == 0 {
		return nil, nil, &AccessError{Problem: AccessNotOffered}
	}
	e := &AccessError{Problem: AccessNotMatched}
	if config != nil {
		for i := range config.Providers {
			p := &config.Providers[i]
			if cluster, ok := offered[p.Name]; ok {
				return p, cluster, nil
			}
			e.Want = append(e.Want, p.Name)
		}
	}
	for name := range offered {
		e.Have = append(e.Have, name)
	}
	slices.Sort(e.Have)
	e.Have, e.Want = clippedList(e.Have), clippedList(e.Want)
	return nil, nil, e
}

// ChooseAccessProvider returns the name of the configured provider that [ParseAccessProvider] uses for a profile, and
// the clusterName in the profile's extension client.authentication.k8s.io/exec for it, empty if there is none. By that
// name the plugin secretreader of the Cluster Inventory API finds a token. Errors are a [*AccessError].
func ChooseAccessProvider(config *access.Config, profile *v1alpha1.ClusterProfile) (name, clusterName string, err error) {
	provider, offered, err := match(config, profile)
	if err != nil {
		return "", "", err
	}
	for _, x := range offered.Extensions {
		if x.Name != execExtension {
			continue
		}
		var cluster *struct {
			ClusterName string `json:"clusterName"`
		}
		// Of another type: it names no cluster.
		if json.Unmarshal(x.Extension.Raw, &cluster) == nil && cluster != nil {
			clusterName = cluster.ClusterName
		}
		break
	}
	return provider.Name, clusterName, nil
}

// ParseAccessToken makes a connection of the access provider that a ClusterProfile lists under a name and of a bearer
// token, without a plugin. Errors are those of [ParseAccessProvider].
func ParseAccessToken(name string, profile *v1alpha1.ClusterProfile, token Secret, policy Policy) (Result, error) {
	_, offered, err := match(access.New([]access.Provider{{Name: name}}), profile)
	if err != nil {
		return Result{}, err
	}
	c, err := readOffered(name, offered, policy)
	if err != nil {
		return Result{Name: name}, err
	}
	u := &rawUser{entry: entry{object: accessObject, list: "providers", name: name}, names: userNames{token: "token", any: "token"}}
	u.token, u.mentions = token.Reveal(), true
	r, err := build(policy, c, u, Result{Name: name})
	if failure := new(ParseError); errors.As(err, &failure) {
		err = &AccessError{Problem: AccessInvalid, Err: failure}
	}
	return r, err
}

func parseAccess(provider *access.Provider, offered *clientcmdv1.Cluster, policy Policy) (Result, error) {
	name := provider.Name
	r := Result{Name: name}
	c, err := readOffered(name, offered, policy)
	if err != nil {
		return r, err
	}
	u := &rawUser{entry: entry{object: accessObject, list: "providers", name: name}, names: userNames{exec: "execConfig"}}
	if provider.ExecConfig == nil {
		return r, u.failure("execConfig", ProblemMissing)
	}
	extensions, failure := readExtensions(c, u, provider, offered)
	if failure != nil {
		return r, failure
	}
	c.execConfig = string(extensions.exec)
	exec, failure := buildExec(u, provider, extensions)
	if failure != nil {
		return r, failure
	}
	u.exec = exec
	var found []*PolicyError
	if slices.ContainsFunc(exec.env, func(v EnvVar) bool { return !v.Configured && !policy.allowsVariable(v) }) {
		field := c.field("cluster.extensions[" + additionalEnvsExtension + "]") // where it comes from
		found = append(found, &PolicyError{Field: field, Rule: RuleExecEnv})
	}
	return build(policy, c, u, r, found...)
}

// readOffered reads the cluster that a profile offers under a name. Its error is a [*PolicyError].
func readOffered(name string, offered *clientcmdv1.Cluster, policy Policy) (*rawCluster, error) {
	c := &rawCluster{entry: entry{object: accessObject, list: "accessProviders", name: name}, names: clusterNames{
		server: "cluster.server", proxy: "cluster.proxy-url", caFile: "cluster.certificate-authority",
		caData: "cluster.certificate-authority-data", tlsServerName: "cluster.tls-server-name",
		insecure: "cluster.insecure-skip-tls-verify",
	}}
	size := len(offered.Server) + len(offered.CertificateAuthorityData) + len(offered.ProxyURL) + len(offered.TLSServerName)
	for _, x := range offered.Extensions {
		size += len(x.Name) + len(x.Extension.Raw)
	}
	if err := policy.checkSize(c.field(""), size); err != nil {
		return nil, err
	}
	c.server = parseAddress(offered.Server, "https", "http")
	c.caFile = offered.CertificateAuthority
	c.caData = encoded{text: string(offered.CertificateAuthorityData)}
	c.tlsServerName = offered.TLSServerName
	c.insecure = offered.InsecureSkipTLSVerify
	c.disableCompression = offered.DisableCompression
	if offered.ProxyURL != "" {
		c.hasProxy, c.proxy = true, parseAddress(offered.ProxyURL, "http", "https", "socks5")
	}
	return c, nil
}

// profileExtensions are the extensions of a profile that count.
type profileExtensions struct {
	exec, args, envs []byte // JSON; nil if absent, null, or ignored by policy
}

// readExtensions checks the extensions before package access reads them: it panics on an env of null, and its
// errors quote values.
func readExtensions(c *rawCluster, u *rawUser, p *access.Provider, offered *clientcmdv1.Cluster) (x profileExtensions, _ *ParseError) {
	readArgs, readEnvs := false, false
	switch p.ProfileSourcedCLIArgsPolicy {
	case "", access.ProfileSourcedCLIArgsPolicyIgnore:
	case access.ProfileSourcedCLIArgsPolicyAppend:
		readArgs = true
	default:
		return x, u.failure("profileSourcedCLIArgsPolicy", ProblemType)
	}
	switch p.ProfileSourcedEnvVarsPolicy {
	case "", access.ProfileSourcedEnvVarsPolicyIgnore:
	case access.ProfileSourcedEnvVarsPolicyAppendIfNotExists, access.ProfileSourcedEnvVarsPolicyReplace:
		readEnvs = true
	default:
		return x, u.failure("profileSourcedEnvVarsPolicy", ProblemType)
	}
	seen := make(map[string]bool, len(offered.Extensions))
	for i := range offered.Extensions {
		name := offered.Extensions[i].Name
		raw := bytes.Trim(offered.Extensions[i].Extension.Raw, " \t\r\n") // the space that JSON allows around a value
		if name != execExtension && name != additionalArgsExtension && name != additionalEnvsExtension {
			continue
		}
		field := "cluster.extensions[" + name + "]"
		if seen[name] {
			return x, c.failure(field, ProblemAmbiguous)
		}
		seen[name] = true
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		if !json.Valid(raw) {
			return x, c.failure(field, ProblemSyntax)
		}
		switch {
		case name == execExtension:
			x.exec = raw
		case name == additionalArgsExtension && readArgs:
			var args []*string
			if json.Unmarshal(raw, &args) != nil || slices.Contains(args, nil) {
				return x, c.failure(field, ProblemType)
			}
			x.args = raw
		case name == additionalEnvsExtension && readEnvs:
			var envs map[string]*string
			if json.Unmarshal(raw, &envs) != nil {
				return x, c.failure(field, ProblemType)
			}
			for variable, value := range envs {
				if value == nil || variable == "" || strings.ContainsAny(variable, "=\x00") {
					return x, c.failure(field, ProblemType)
				}
			}
			x.envs = raw
		}
	}
	return x, nil
}

// buildExec lets package access combine the configured plugin with what the profile adds. It works on the
// ExecConfig that it is given, so it gets a copy: otherwise one profile's additions would reach the next.
// Fields that it drops (tls-server-name and others) are not asked of it.
func buildExec(u *rawUser, p *access.Provider, x profileExtensions) (*rawExec, *ParseError) {
	own := *p
	own.ExecConfig = p.ExecConfig.DeepCopy()
	offered := v1alpha1.AccessProvider{Name: p.Name}
	for name, raw := range map[string][]byte{additionalArgsExtension: x.args, additionalEnvsExtension: x.envs} {
		if raw != nil {
			extension := clientcmdv1.NamedExtension{Name: name}
			extension.Extension.Raw = raw
			offered.Cluster.Extensions = append(offered.Cluster.Extensions, extension)
		}
	}
	profile := &v1alpha1.ClusterProfile{}
	profile.Status.AccessProviders = []v1alpha1.AccessProvider{offered}
	config, err := access.New([]access.Provider{own}).BuildConfigFromCP(profile)
	if err != nil {
		return nil, u.failure("execConfig", ProblemType) // not err, whose text may quote values
	}
	plugin := config.ExecProvider
	if x.envs != nil {
		// It comes out of a map.
		slices.SortFunc(plugin.Env, func(a, b clientcmdapi.ExecEnvVar) int { return strings.Compare(a.Name, b.Name) })
	}
	exec := &rawExec{
		command: plugin.Command, apiVersion: plugin.APIVersion, args: plugin.Args,
		provideClusterInfo: plugin.ProvideClusterInfo, configured: true,
	}
	for _, v := range plugin.Env {
		// A profile that says the same as the configuration changes nothing.
		exec.env = append(exec.env, EnvVar{Name: v.Name, Value: NewSecret(v.Value), Configured: slices.Contains(p.ExecConfig.Env, v)})
	}
	return exec, nil
}
