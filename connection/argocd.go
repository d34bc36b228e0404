package connection

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const argoCDObject = "Argo CD cluster Secret"

// ParseArgoCD reads the data of an Argo CD cluster Secret: name, server, and config in JSON. The field
// names in errors are those of the Secret, such as config.tlsClientConfig.caData. A Secret without a credential is an
// error, since Argo CD then uses its own service account, which is not ours. awsAuthConfig is always refused.
// Errors are those of [ParseKubeconfig].
func ParseArgoCD(data map[string][]byte, policy Policy) (Result, error) {
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if err := policy.checkSize(argoCDObject, size); err != nil {
		return Result{}, err
	}
	c := &rawCluster{entry: entry{object: argoCDObject}, names: clusterNames{
		server: "server", proxy: "config.proxyUrl", caData: "config.tlsClientConfig.caData",
		tlsServerName: "config.tlsClientConfig.serverName", insecure: "config.tlsClientConfig.insecure",
	}}
	u := &rawUser{entry: entry{object: argoCDObject}, names: userNames{
		token: "config.bearerToken", certData: "config.tlsClientConfig.certData", keyData: "config.tlsClientConfig.keyData",
		basic: "config.username", exec: "config.execProviderConfig", any: "config",
	}}
	c.server = parseAddress(strings.TrimSpace(string(data["server"])), "https", "http")
	u.mentions = true
	if config := data["config"]; len(config) > 0 {
		root, err := parseDocument(argoCDObject, config)
		if err != nil {
			return Result{}, err
		}
		u.each("config", root, func(key string, k, v *yaml.Node) { readArgoCDConfig(c, u, key, k, v) })
	}
	r := Result{Name: string(data["name"])}
	return build(policy, c, u, r)
}

func readArgoCDConfig(c *rawCluster, u *rawUser, key string, k, v *yaml.Node) {
	field := "config." + key
	switch key {
	case "bearerToken":
		u.token = u.text(field, v)
	case "username":
		u.username = u.text(field, v)
	case "password":
		u.password = u.text(field, v)
	case "proxyUrl":
		if text := u.text(field, v); text != "" {
			c.hasProxy, c.proxy = true, parseAddress(text, "http", "https", "socks5")
		}
	case "disableCompression":
		c.disableCompression = u.boolean(field, v)
	case "awsAuthConfig":
		if !isNull(v) {
			u.authProvider = field
		}
	case "execProviderConfig":
		if !isNull(v) {
			u.exec = readArgoCDExec(u, v)
		}
	case "tlsClientConfig":
		u.each(field, v, func(key string, k, v *yaml.Node) {
			field := field + "." + key
			switch key {
			case "insecure":
				c.insecure = u.boolean(field, v)
			case "serverName":
				c.tlsServerName = u.text(field, v)
			case "caData":
				c.caData = encoded{text: u.text(field, v), base64: true}
			case "certData":
				u.certData = encoded{text: u.text(field, v), base64: true}
			case "keyData":
				u.keyData = encoded{text: u.text(field, v), base64: true}
			default:
				u.unknown("config.tlsClientConfig.", k, v)
			}
		})
	default:
		u.unknown("config.", k, v)
	}
}

// readArgoCDExec reads a plugin. Its env is an object; it is sorted by name, for it has no order of its own.
func readArgoCDExec(u *rawUser, n *yaml.Node) *rawExec {
	exec := new(rawExec)
	u.each(u.names.exec, n, func(key string, k, v *yaml.Node) {
		field := u.names.exec + "." + key
		switch key {
		case "command":
			exec.command = u.text(field, v)
		case "args":
			exec.args = u.texts(field, v)
		case "env":
			u.each(field, v, func(name string, _, value *yaml.Node) {
				exec.env = append(exec.env, EnvVar{Name: name, Value: NewSecret(u.text(field, value))})
			})
		case "apiVersion":
			exec.apiVersion = u.text(field, v)
		case "installHint": // for people at a terminal
		default:
			u.unknown(u.names.exec+".", k, v)
		}
	})
	slices.SortFunc(exec.env, func(a, b EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return exec
}
