package connection

import (
	"bytes"
	"maps"
	"slices"
)

// Spec is how a cluster is reached and authenticated to. It is a value: it holds data and never a path,
// copies are independent as long as nobody writes to the slices, and two are compared with [Spec.Equal] or
// by their fingerprints. Formatting one in any way shows no credential.
type Spec struct {
	Endpoint Endpoint
	Auth     Auth
}

// Endpoint is where the API server is and how it is recognised.
type Endpoint struct {
	// Server is the URL of the API server: scheme and host are required, a path is kept, and there is no
	// user information, query or fragment.
	Server string
	// CAData are the PEM certificates that the server's certificate must descend from. Empty: the system's roots.
	CAData []byte
	// TLSServerName is the name to ask for and to verify. Empty: the host of Server.
	TLSServerName string
	// InsecureSkipTLSVerify switches the server's verification off.
	InsecureSkipTLSVerify bool
	// Proxy is the proxy to go through. Zero: none; proxies of the environment are never used.
	Proxy Proxy
	// DisableCompression switches gzip off.
	DisableCompression bool
}

// Proxy is an HTTP, HTTPS or SOCKS5 proxy.
type Proxy struct {
	// URL is the proxy's URL, without user information. Schemes: http, https, socks5.
	URL string
	// Username and Password authenticate to the proxy where they are set.
	Username string
	Password Secret
}

// Auth is how to authenticate; the zero value is anonymous. Several fields may be set. A client certificate is always presented; of the
// others, a token wins over a plugin, as in client-go, and a plugin over basic auth.
type Auth struct {
	// Token is a bearer token.
	Token Secret
	// ClientCertificateData and ClientKeyData are a PEM client certificate and its key.
	ClientCertificateData []byte
	ClientKeyData         Secret
	// Username and Password are for basic auth, which kube-apiserver no longer supports but proxies in front of it may.
	Username string
	Password Secret
	// Exec is a credential plugin. Nil: none.
	Exec *Exec
	// Impersonate asks the server to act as somebody else.
	Impersonate Impersonation
}

// Exec is a client-go credential plugin (KEP-541).
type Exec struct {
	// Command is the program to run.
	Command string
	// Args and Env are its arguments and additional environment variables; they may hold credentials.
	Args []Secret
	Env  []EnvVar
	// APIVersion is client.authentication.k8s.io/v1 or …/v1beta1.
	APIVersion string
	// ProvideClusterInfo passes the endpoint and ClusterConfig to the plugin in KUBERNETES_EXEC_INFO.
	ProvideClusterInfo bool
	// ClusterConfig is the JSON of the cluster's client.authentication.k8s.io/exec extension.
	ClusterConfig Secret
}

// EnvVar is an environment variable of a credential plugin.
type EnvVar struct {
	Name  string
	Value Secret
	// Configured says that the operator configured the variable, who may set anything but KUBERNETES_EXEC_INFO. Others
	// come from whoever writes the inventory, and may not set what is reserved: see [ReservedVariable].
	Configured bool
}

// Impersonation is whom to act as. The zero value impersonates nobody.
type Impersonation struct {
	// UserName is the user to act as, and UID that user's. Without a user the rest says nothing, and is refused.
	UserName string
	UID      string
	// Groups and Extra are the groups and additional attributes to act with.
	Groups []string
	Extra  map[string][]string
}

// IsZero reports whether nobody is impersonated.
func (i Impersonation) IsZero() bool {
	return i.UserName == "" && i.UID == "" && len(i.Groups) == 0 && len(i.Extra) == 0
}

// Equal reports whether both say the same.
func (i Impersonation) Equal(o Impersonation) bool {
	return i.UserName == o.UserName && i.UID == o.UID && slices.Equal(i.Groups, o.Groups) &&
		maps.EqualFunc(i.Extra, o.Extra, slices.Equal[[]string])
}

// Equal reports whether both connections are the same in every field.
func (s Spec) Equal(o Spec) bool { return s.Endpoint.Equal(o.Endpoint) && s.Auth.Equal(o.Auth) }

// Equal reports whether both endpoints are the same in every field.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Server == o.Server && bytes.Equal(e.CAData, o.CAData) && e.TLSServerName == o.TLSServerName &&
		e.InsecureSkipTLSVerify == o.InsecureSkipTLSVerify && e.Proxy.Equal(o.Proxy) &&
		e.DisableCompression == o.DisableCompression
}

// Equal reports whether both proxies are the same.
func (p Proxy) Equal(o Proxy) bool {
	return p.URL == o.URL && p.Username == o.Username && p.Password.Equal(o.Password)
}

// Equal reports whether both authenticate alike.
func (a Auth) Equal(o Auth) bool {
	return a.Token.Equal(o.Token) && bytes.Equal(a.ClientCertificateData, o.ClientCertificateData) &&
		a.ClientKeyData.Equal(o.ClientKeyData) && a.Username == o.Username && a.Password.Equal(o.Password) &&
		a.Exec.Equal(o.Exec) && a.Impersonate.Equal(o.Impersonate)
}

// Equal reports whether both run the same plugin in the same way. Both may be nil.
func (e *Exec) Equal(o *Exec) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.Command == o.Command && slices.EqualFunc(e.Args, o.Args, Secret.Equal) &&
		slices.EqualFunc(e.Env, o.Env, EnvVar.Equal) && e.APIVersion == o.APIVersion &&
		e.ProvideClusterInfo == o.ProvideClusterInfo && e.ClusterConfig.Equal(o.ClusterConfig)
}

// Equal reports whether both set the same variable to the same value, by the same right.
func (v EnvVar) Equal(o EnvVar) bool {
	return v.Name == o.Name && v.Value.Equal(o.Value) && v.Configured == o.Configured
}
