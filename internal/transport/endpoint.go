package transport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/tributary-fleet/tributary/connection"
)

// endpoint is a connection.Endpoint ready for use.
type endpoint struct {
	scheme, host       string
	prefix, rawPrefix  string // path of the server, without a slash at its end; raw: as escaped
	roots              *x509.CertPool
	serverName         string
	insecure           bool
	proxy              *url.URL
	proxyTLS           *tls.Config // for a proxy that is itself spoken to by TLS; nil: none
	disableCompression bool
}

func parseEndpoint(e connection.Endpoint) (endpoint, error) {
	u, err := url.Parse(e.Server)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		// The text of err quotes the URL, which may hold anything.
		return endpoint{}, &SpecError{"Endpoint.Server", "not an http or https URL with a host"}
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, &SpecError{"Endpoint.Server", "has user information, a query or a fragment"}
	}
	if hasDotSegment(u.Path) {
		return endpoint{}, &SpecError{"Endpoint.Server", "its path holds . or .. as a segment"}
	}
	out := endpoint{
		scheme: u.Scheme, host: u.Host,
		prefix: strings.TrimRight(u.Path, "/"), rawPrefix: strings.TrimRight(u.EscapedPath(), "/"),
		serverName: e.TLSServerName, insecure: e.InsecureSkipTLSVerify, disableCompression: e.DisableCompression,
	}
	if len(e.CAData) > 0 {
		out.roots = x509.NewCertPool()
		if !out.roots.AppendCertsFromPEM(e.CAData) {
			return endpoint{}, &SpecError{"Endpoint.CAData", "holds no PEM certificate"}
		}
	}
	if out.proxy, err = parseProxy(e.Proxy); err != nil {
		return endpoint{}, err
	}
	if out.proxy != nil && out.proxy.Scheme == "https" {
		out.proxyTLS = proxyTLS(out.proxy, e.CAData)
		out.proxy.Scheme = "http" // TLS is the dialler's business
		if out.proxy.Port() == "" {
			out.proxy.Host = net.JoinHostPort(out.proxy.Hostname(), "443")
		}
	}
	return out, nil
}

// proxyTLS is how an https proxy is spoken to. net/http would use the cluster's own configuration: present the client certificate to
// the proxy, expect the cluster's TLS name of it, and trust the cluster's authority alone. Here a proxy may have a certificate of the
// cluster's authority (as client-go would have it) or of a public one.
func proxyTLS(u *url.URL, clusterCA []byte) *tls.Config {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(clusterCA)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
}

func parseProxy(p connection.Proxy) (*url.URL, error) {
	if p.URL == "" {
		return nil, nil
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" {
		return nil, &SpecError{"Endpoint.Proxy.URL", "not a URL with a host"}
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return nil, &SpecError{"Endpoint.Proxy.URL", "scheme is not http, https or socks5"}
	}
	if u.User != nil {
		return nil, &SpecError{"Endpoint.Proxy.URL", "has user information"}
	}
	if p.Username != "" || !p.Password.IsZero() {
		u.User = url.UserPassword(p.Username, p.Password.Reveal())
	}
	return u, nil
}

// tlsConfig returns what a handshake with the endpoint needs. Each transport gets one of its own, since net/http changes it.
func (e endpoint) tlsConfig(certificate *tls.Certificate) *tls.Config {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            e.roots,
		ServerName:         e.serverName,
		InsecureSkipVerify: e.insecure,
	}
	if certificate != nil {
		// Not Certificates: those are withheld from a server whose list of acceptable authorities does not name the issuer, and
		// that list is often incomplete.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return c
}

// errDotSegment is returned for a request that could leave the path of the server.
var errDotSegment = errors.New("transport: the path of the request holds . or .. as a segment")

// addPrefix puts the path of the server before the path of a request. A path that leads out of the server's is refused: where one proxy
// serves many clusters, it would reach another one with this one's credential.
func (e endpoint) addPrefix(u *url.URL) error {
	if e.prefix == "" {
		return nil
	}
	if hasDotSegment(u.Path) {
		return errDotSegment
	}
	if u.RawPath != "" || e.rawPrefix != e.prefix {
		u.RawPath = e.rawPrefix + u.EscapedPath()
	}
	u.Path = e.prefix + u.Path
	return nil
}

// hasDotSegment reports whether a path, as url.URL.Path has it decoded, holds the segment . or .., also for a
// proxy that decodes once more or takes backslashes for slashes.
func hasDotSegment(path string) bool {
	if strings.Contains(path, "%") {
		if decoded, err := url.PathUnescape(path); err == nil && dotSegment(decoded) {
			return true
		}
	}
	return dotSegment(path)
}

func dotSegment(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '\\' }) {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

func parseCertificate(a connection.Auth) (*tls.Certificate, error) {
	if len(a.ClientCertificateData) == 0 && a.ClientKeyData.IsZero() {
		return nil, nil
	}
	if len(a.ClientCertificateData) == 0 {
		return nil, &SpecError{"Auth.ClientCertificateData", "missing beside a key"}
	}
	if a.ClientKeyData.IsZero() {
		return nil, &SpecError{"Auth.ClientKeyData", "missing beside a certificate"}
	}
	c, err := tls.X509KeyPair(a.ClientCertificateData, []byte(a.ClientKeyData.Reveal()))
	if err != nil {
		return nil, &SpecError{"Auth.ClientCertificateData", "certificate and key are not a PEM pair that belongs together"}
	}
	return &c, nil
}

func sameCertificate(a, b *tls.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

func staticAuthorization(a connection.Auth) ([]string, error) {
	switch {
	case !a.Token.IsZero():
		if !validHeaderValue(a.Token.Reveal()) {
			return nil, &SpecError{"Auth.Token", "holds a character that an HTTP header cannot carry"}
		}
		return bearer(a.Token), nil
	case a.Exec != nil:
		return nil, nil
	case a.Username != "" || !a.Password.IsZero():
		return []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password.Reveal()))}, nil
	default:
		return nil, nil
	}
}

func bearer(token connection.Secret) []string {
	if token.IsZero() {
		return nil
	}
	return []string{"Bearer " + token.Reveal()}
}

// parseImpersonation returns the headers that ask to act as somebody else.
func parseImpersonation(i connection.Impersonation) ([]header, error) {
	if i.IsZero() {
		return nil, nil
	}
	if i.UserName == "" {
		// Sent as it is, or dropped, the request would run with the rights of the credential itself.
		return nil, &SpecError{"Auth.Impersonate", "names groups, a UID or extra values without a user"}
	}
	hs := []header{{"Impersonate-User", []string{i.UserName}, true}}
	if i.UID != "" {
		hs = append(hs, header{"Impersonate-Uid", []string{i.UID}, true})
	}
	if len(i.Groups) > 0 {
		hs = append(hs, header{"Impersonate-Group", slices.Clone(i.Groups), true})
	}
	for _, k := range slices.Sorted(maps.Keys(i.Extra)) {
		if len(i.Extra[k]) > 0 {
			hs = append(hs, header{canonical("Impersonate-Extra-" + escapeHeaderKey(k)), slices.Clone(i.Extra[k]), true})
		}
	}
	for _, h := range hs {
		if !slices.ContainsFunc(h.values, func(v string) bool { return !validHeaderValue(v) }) {
			continue
		}
		return nil, &SpecError{"Auth.Impersonate", fmt.Sprintf("%s holds a character that an HTTP header cannot carry", h.key)}
	}
	return hs, nil
}
