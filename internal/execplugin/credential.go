package execplugin

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
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
	// Expiry is when the credential ends: what the plugin says, or the end of the certificate if that is earlier. Zero: unknown.
	Expiry time.Time

	// number counts the credentials of one source, from 1; 0: it is none's.
	number uint64

	// certificate is reached through a func, so that no formatting of a Credential follows a pointer into the private key.
	certificate func() *tls.Certificate
}

// Certificate returns the client certificate ready for use, or nil.
func (c *Credential) Certificate() *tls.Certificate {
	if c == nil || c.certificate == nil {
		return nil
	}
	return c.certificate()
}

// Equal reports whether both authenticate in the same way, whenever they expire. Both may be nil.
func (c *Credential) Equal(o *Credential) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Token.Equal(o.Token) && bytes.Equal(c.CertificateData, o.CertificateData) && c.KeyData.Equal(o.KeyData)
}

// Before reports whether c was returned earlier than o by the same plugin, so that o is the one to use. Neither may be nil.
func (c *Credential) Before(o *Credential) bool { return c.number < o.number }

// execCredential is client.authentication.k8s.io/v1 and v1beta1 ExecCredential as a plugin prints it. The
// versions differ in nothing that is read here.
type execCredential struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Status     *struct {
		ExpirationTimestamp   *time.Time `json:"expirationTimestamp"`
		Token                 string     `json:"token"`
		ClientCertificateData string     `json:"clientCertificateData"`
		ClientKeyData         string     `json:"clientKeyData"`
	} `json:"status"`
}

// decode reads what a plugin printed. It returns what is wrong with it in words of its own: the
// decoder's errors quote the input.
func decode(out []byte, apiVersion string) (cred *Credential, problem string) {
	dec := json.NewDecoder(bytes.NewReader(out))
	var e execCredential
	if err := dec.Decode(&e); err != nil {
		return nil, "its output is not an ExecCredential in JSON"
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, "its output goes on behind the ExecCredential"
	}
	if e.Kind != "ExecCredential" {
		return nil, "the kind of its output is not ExecCredential"
	}
	if e.APIVersion != apiVersion {
		return nil, "the apiVersion of its output is not " + apiVersion
	}
	if e.Status == nil {
		return nil, "its output has no status"
	}
	st := e.Status
	if st.Token == "" && st.ClientCertificateData == "" && st.ClientKeyData == "" {
		return nil, "its output has neither a token nor a client certificate"
	}
	for i := range len(st.Token) {
		if c := st.Token[i]; c <= ' ' || c >= 0x7f {
			return nil, "its token holds a character that an HTTP header cannot carry"
		}
	}
	cred = &Credential{Token: connection.NewSecret(st.Token)}
	if st.ExpirationTimestamp != nil {
		cred.Expiry = *st.ExpirationTimestamp
	}
	if st.ClientCertificateData == "" && st.ClientKeyData == "" {
		return cred, ""
	}
	pair, err := tls.X509KeyPair([]byte(st.ClientCertificateData), []byte(st.ClientKeyData))
	if err != nil {
		return nil, "its client certificate and key are not a PEM pair that belongs together"
	}
	if end := pair.Leaf.NotAfter; cred.Expiry.IsZero() || end.Before(cred.Expiry) {
		cred.Expiry = end
	}
	cred.CertificateData, cred.KeyData = []byte(st.ClientCertificateData), connection.NewSecret(st.ClientKeyData)
	cred.certificate = func() *tls.Certificate { return &pair }
	return cred, ""
}
