package connection

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"
)

// identity is a certificate with its key, in PEM.
type identity struct{ cert, key string }

func newIdentity(tb testing.TB, key crypto.Signer) identity {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}},
		NotBefore:    time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return identity{
		cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		key:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
	}
}

// admin and other are two identities that the tests share, since making keys takes time.
var admin, other = sync.OnceValue(newECDSA), sync.OnceValue(newECDSA)

func newECDSA() identity {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return newIdentity(&testing.B{}, key)
}

// kubeadm is an identity as kubeadm makes it: RSA with 2,048 bits, PKCS #1.
func kubeadm(tb testing.TB) identity {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	id := newIdentity(tb, key)
	id.key = string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	return id
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// kubeconfig is a kubeconfig of one context, from the lines of its cluster and user.
func kubeconfig(cluster, user string) string {
	indent := func(lines string) string {
		return "    " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n    ")
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: main
clusters:
- name: prod
  cluster:
%s
users:
- name: admin
  user:
%s
contexts:
- name: main
  context: {cluster: prod, user: admin}
`, indent(cluster), indent(user))
}

func secureCluster() string {
	return "server: https://prod.example.com:6443\ncertificate-authority-data: " + b64(admin().cert)
}
