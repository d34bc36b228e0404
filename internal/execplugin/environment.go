package execplugin

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/tributary-fleet/tributary/connection"
)

// infoVariable hands the request to the plugin (KEP-541).
const infoVariable = "KUBERNETES_EXEC_INFO"

// DefaultEnvironment returns the names of the variables of this process that plugins get by default: what programs need in order to
// find programs, files, certificates and the hub that they run in, and nothing that is a credential.
func DefaultEnvironment() []string {
	return []string{
		"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "TZ",
		"SSL_CERT_FILE", "SSL_CERT_DIR",
		"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
		"SYSTEMROOT", "USERPROFILE", "TEMP", "PATHEXT", // of Windows
	}
}

// reserved are the variables that a plugin's own environment may not set, because they decide which code is run
// (by the dynamic linker, a shell or an interpreter), whom the plugin trusts, or which hub it talks to. Parts of that
// environment can come from whoever writes the inventory.
var reserved = map[string]bool{
	"PATH": true, "PATHEXT": true, "HOME": true, "USERPROFILE": true, "SYSTEMROOT": true, "COMSPEC": true,
	"BASH_ENV": true, "ENV": true, "SHELLOPTS": true, "BASHOPTS": true, "IFS": true, "PS4": true, "SHELL": true,
	"PYTHONPATH": true, "PYTHONHOME": true, "PYTHONSTARTUP": true, "PYTHONINSPECT": true,
	"PERL5LIB": true, "PERL5OPT": true, "PERLLIB": true, "RUBYLIB": true, "RUBYOPT": true,
	"NODE_OPTIONS": true, "NODE_PATH": true, "JAVA_TOOL_OPTIONS": true, "_JAVA_OPTIONS": true, "CLASSPATH": true,
	"GCONV_PATH": true, "LOCPATH": true, "GLIBC_TUNABLES": true, "GODEBUG": true, "GOTRACEBACK": true,
	"SSL_CERT_FILE": true, "SSL_CERT_DIR": true,
	"KUBERNETES_SERVICE_HOST": true, "KUBERNETES_SERVICE_PORT": true,
	infoVariable: true,
}

// Reserved reports whether a plugin's own environment may not set the variable. Names are compared without regard to case,
// as Windows does.
func Reserved(name string) bool {
	name = strings.ToUpper(name)
	return reserved[name] || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || strings.HasPrefix(name, "BASH_FUNC_")
}

// environment returns the environment of a plugin, or what is wrong with its configuration.
func environment(allowed []string, exec connection.Exec, endpoint connection.Endpoint) (env []string, problem string) {
	for _, name := range allowed {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for _, v := range exec.Env {
		value := v.Value.Reveal()
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, "an environment variable has no valid name or value"
		}
		if Reserved(v.Name) {
			return nil, "its environment may not set " + v.Name
		}
		env = append(env, v.Name+"="+value)
	}
	info, problem := execInfo(exec, endpoint)
	if problem != "" {
		return nil, problem
	}
	return append(env, infoVariable+"="+info), ""
}

// execInfo returns the ExecCredential that is handed to the plugin.
func execInfo(exec connection.Exec, endpoint connection.Endpoint) (info, problem string) {
	type clusterInfo struct {
		Server                   string          `json:"server"`
		TLSServerName            string          `json:"tls-server-name,omitempty"`
		InsecureSkipTLSVerify    bool            `json:"insecure-skip-tls-verify,omitempty"`
		CertificateAuthorityData []byte          `json:"certificate-authority-data,omitempty"`
		ProxyURL                 string          `json:"proxy-url,omitempty"`
		DisableCompression       bool            `json:"disable-compression,omitempty"`
		Config                   json.RawMessage `json:"config,omitempty"`
	}
	type spec struct {
		Cluster     *clusterInfo `json:"cluster,omitempty"`
		Interactive bool         `json:"interactive"`
	}
	request := struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Spec       spec   `json:"spec"`
	}{Kind: "ExecCredential", APIVersion: exec.APIVersion}
	if exec.ProvideClusterInfo {
		request.Spec.Cluster = &clusterInfo{
			Server:                   endpoint.Server,
			TLSServerName:            endpoint.TLSServerName,
			InsecureSkipTLSVerify:    endpoint.InsecureSkipTLSVerify,
			CertificateAuthorityData: endpoint.CAData,
			ProxyURL:                 endpoint.Proxy.URL, // without its credential: that is between us and the proxy
			DisableCompression:       endpoint.DisableCompression,
			Config:                   json.RawMessage(exec.ClusterConfig.Reveal()),
		}
	}
	b, err := json.Marshal(request)
	if err != nil {
		return "", "the configuration of its cluster is not JSON"
	}
	return string(b), ""
}
