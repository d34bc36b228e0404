package execplugin

import (
	"encoding/json"
	"fmt"
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
		if !v.Configured && connection.ReservedVariable(v.Name) || strings.EqualFold(v.Name, infoVariable) {
			const longest = 64 // the name can be anybody's
			return nil, fmt.Sprintf("its environment may not set %.*q", longest, v.Name)
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
