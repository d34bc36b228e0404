package transport

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/execplugin"
)

// RESTConfig returns the configuration to build a cluster.Cluster with. host is any URL that stays the same for the cluster's life,
// such as "https://name.member.invalid": requests never go there. There is no client-side rate limit.
//
// What dials for itself instead of using the configuration's Transport (client-go's SPDY and WebSocket executors for exec and
// port-forward) needs a [Generation.PlainConfig].
func (t *Transport) RESTConfig(host string) *rest.Config {
	return &rest.Config{Host: host, Transport: t, QPS: -1}
}

// PlainConfig returns an ordinary configuration for a connection: one that does not follow swaps, for consumers that need
// the connection's parts. It never uses proxies of the environment. client-go does not share connections between clients that are made from
// configurations with a proxy function, so make one client of it rather than many.
//
// A connection whose credential comes from a plugin has none to put into a configuration; use [Generation.PlainConfig]. The plugin
// itself is never put in: client-go would run it without a deadline and with the whole environment. The error is a *[SpecError].
func PlainConfig(spec connection.Spec) (*rest.Config, error) {
	if spec.Auth.Exec != nil && spec.Auth.Token.IsZero() {
		return nil, &SpecError{"Auth.Exec", "a plain configuration cannot hold a credential plugin"}
	}
	return plainConfig(spec, nil)
}

// PlainConfig returns an ordinary configuration that holds what the generation uses now, including the present credential
// of its plugin, which is run if need be. It does not follow swaps or refreshes: ask again for each use.
func (g *Generation) PlainConfig(ctx context.Context) (*rest.Config, error) {
	cred, err := g.credential(ctx)
	if err != nil {
		return nil, &CredentialError{err}
	}
	return plainConfig(g.spec, cred)
}

func plainConfig(spec connection.Spec, cred *execplugin.Credential) (*rest.Config, error) {
	if _, err := parseEndpoint(spec.Endpoint); err != nil {
		return nil, err
	}
	proxy, err := parseProxy(spec.Endpoint.Proxy)
	if err != nil {
		return nil, err
	}
	if _, err := parseCertificate(spec.Auth); err != nil {
		return nil, err
	}
	if _, err := parseImpersonation(spec.Auth.Impersonate); err != nil {
		return nil, err
	}
	a := spec.Auth
	c := &rest.Config{
		Host: spec.Endpoint.Server,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure:   spec.Endpoint.InsecureSkipTLSVerify,
			ServerName: spec.Endpoint.TLSServerName,
			CertData:   a.ClientCertificateData,
			KeyData:    []byte(a.ClientKeyData.Reveal()),
		},
		BearerToken: a.Token.Reveal(),
		Impersonate: rest.ImpersonationConfig{
			UserName: a.Impersonate.UserName, UID: a.Impersonate.UID, Groups: a.Impersonate.Groups, Extra: a.Impersonate.Extra,
		},
		DisableCompression: spec.Endpoint.DisableCompression,
		Proxy:              func(*http.Request) (*url.URL, error) { return proxy, nil },
	}
	if !c.Insecure { // client-go refuses both
		c.CAData = spec.Endpoint.CAData
	}
	if cred != nil {
		c.BearerToken = cred.Token.Reveal()
		if len(cred.CertificateData) > 0 {
			c.CertData, c.KeyData = cred.CertificateData, []byte(cred.KeyData.Reveal())
		}
	}
	if c.BearerToken == "" && spec.Auth.Exec == nil { // client-go refuses both
		c.Username, c.Password = a.Username, a.Password.Reveal()
	}
	return c, nil
}
