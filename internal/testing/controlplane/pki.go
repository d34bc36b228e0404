package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is how long certificates are valid: longer than any control plane lives.
const certificateLife = 365 * 24 * time.Hour

// keyPair is a PEM certificate with its PEM key.
type keyPair struct{ cert, key []byte }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// newAuthority makes a self-signed authority.
func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create authority %s: %w", name, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, fmt.Errorf("create authority %s: %w", name, err)
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("create authority %s: %w", name, err)
	}
	return &authority{cert: cert, key: key, pem: pemOf("CERTIFICATE", der)}, nil
}

// server issues a serving certificate for the loopback interface.
func (a *authority) server() (keyPair, error) {
	return a.issue(pkix.Name{CommonName: "kube-apiserver"}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.DNSNames = []string{"localhost", "kubernetes.default.svc"}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	})
}

// client issues a client certificate: Kubernetes takes the common name as the user, organisations as groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.issue(pkix.Name{CommonName: user, Organization: groups}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
}

func (a *authority) issue(name pkix.Name, fill func(*x509.Certificate)) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %s: %w", name.CommonName, err)
	}
	template, err := newTemplate(name)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %s: %w", name.CommonName, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	fill(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %s: %w", name.CommonName, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %s: %w", name.CommonName, err)
	}
	return keyPair{cert: pemOf("CERTIFICATE", der), key: pemOf("EC PRIVATE KEY", keyDER)}, nil
}

func newTemplate(name pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      name,
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(certificateLife),
	}, nil
}

// newSigningKey makes the key that signs service account tokens, and its public half.
func newSigningKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("create service account key: %w", err)
	}
	privateDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("create service account key: %w", err)
	}
	publicDER, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("create service account key: %w", err)
	}
	return pemOf("EC PRIVATE KEY", privateDER), pemOf("PUBLIC KEY", publicDER), nil
}

// identities are the two authorities of a control plane: one for its serving certificate, one for its clients.
type identities struct {
	serving, clients *authority
	admin            keyPair
}

// writeIdentities makes a control plane's keys and certificates, and writes those that the server reads to dir.
func writeIdentities(dir string) (*identities, error) {
	serving, err := newAuthority("serving-ca")
	if err != nil {
		return nil, err
	}
	clients, err := newAuthority("client-ca")
	if err != nil {
		return nil, err
	}
	server, err := serving.server()
	if err != nil {
		return nil, err
	}
	admin, err := clients.client("admin", "system:masters")
	if err != nil {
		return nil, err
	}
	signing, verifying, err := newSigningKey()
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{
		"client-ca.crt": clients.pem,
		"tls.crt":       server.cert, "tls.key": server.key,
		"sa.key": signing, "sa.pub": verifying,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("write keys: %w", err)
		}
	}
	return &identities{serving: serving, clients: clients, admin: admin}, nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
