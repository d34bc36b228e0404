package execplugin

import (
	"crypto/tls"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

// Credential is what a plugin returned. It is immutable, and no formatting shows what is secret about it.
type Credential struct {
	// Token is a bearer token; empty if the plugin gave none.
	Token connection.Secret
	// CertificateData and KeyData are a client certificate and its key in PEM; empty if the plugin gave none.
	CertificateData []byte
	KeyData         connection.Secret
	// Expiry is when the credential ends; zero if the plugin did not say. With a certificate, its own end counts too.
	Expiry time.Time

	certificate *tls.Certificate
}

// Certificate returns the client certificate ready for use, or nil.
func (c *Credential) Certificate() *tls.Certificate { return c.certificate }
