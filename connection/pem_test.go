package connection

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
)

// keyForms returns a key in every form that package tls reads.
func keyForms(t *testing.T, key crypto.Signer) map[string][]byte {
	t.Helper()
	forms := make(map[string][]byte)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	forms["PRIVATE KEY"] = der
	switch key := key.(type) {
	case *rsa.PrivateKey:
		forms["RSA PRIVATE KEY"] = x509.MarshalPKCS1PrivateKey(key)
	case *ecdsa.PrivateKey:
		if forms["EC PRIVATE KEY"], err = x509.MarshalECPrivateKey(key); err != nil {
			t.Fatal(err)
		}
	}
	return forms
}

func signers(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	p256, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, err2 := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	rsa2048, err3 := rsa.GenerateKey(rand.Reader, 2048)
	_, ed, err4 := ed25519.GenerateKey(rand.Reader)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]crypto.Signer{"P-256": p256, "P-384": p384, "RSA": rsa2048, "Ed25519": ed}
}

func leafOf(t *testing.T, certificate string) *x509.Certificate {
	t.Helper()
	_, leaf, problem := certificatesOf([]byte(certificate), func() {})
	if problem != "" {
		t.Fatal(problem)
	}
	return leaf
}

func TestKeysThatPackageTLSTakes(t *testing.T) {
	for name, signer := range signers(t) {
		id := newIdentity(t, signer)
		leaf := leafOf(t, id.cert)
		for form, der := range keyForms(t, signer) {
			for _, block := range []string{form, "PRIVATE KEY", "ANY PRIVATE KEY"} { // package tls does not care about the name
				key := string(pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der}))
				got, problem := privateKeyOf([]byte("text\n"+key+"more"), leaf)
				if problem != "" || got != key {
					t.Errorf("%s in a block %q: %q", name, block, problem)
				}
			}
			if _, problem := privateKeyOf(pem.EncodeToMemory(&pem.Block{Type: form, Bytes: der}), leafOf(t, other().cert)); problem != ProblemKeyMismatch {
				t.Errorf("%s with another certificate: %q", name, problem)
			}
		}
	}
}

// TestDamagedKeysAreFound flips bits all over keys. Every key that is taken is one that package tls takes: what we
// do not ask of RSA keys does not let a damaged one through.
func TestDamagedKeysAreFound(t *testing.T) {
	for name, signer := range signers(t) {
		id := newIdentity(t, signer)
		leaf := leafOf(t, id.cert)
		for form, der := range keyForms(t, signer) {
			step := max(1, len(der)/150)
			for i := 0; i < len(der); i += step {
				damaged := append([]byte(nil), der...)
				damaged[i] ^= 1 << (i % 8)
				key := pem.EncodeToMemory(&pem.Block{Type: form, Bytes: damaged})
				_, problem := privateKeyOf(key, leaf)
				_, err := tls.X509KeyPair([]byte(id.cert), key)
				if problem == "" && err != nil {
					t.Errorf("%s as %s, byte %d damaged: taken, while package tls says %v", name, form, i, err)
				}
			}
		}
	}
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	leaf := leafOf(t, admin().cert)
	type pkcs1 struct {
		Version                   int
		N                         *big.Int
		E                         int
		D, P, Q, DP, DQ, QInverse *big.Int
	}
	encode := func(key pkcs1) []byte {
		der, err := asn1.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	n := func(i int64) *big.Int { return big.NewInt(i) }
	big1 := new(big.Int).Lsh(n(1), 200_000)
	x, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x25519, err := x509.MarshalPKCS8PrivateKey(x)
	if err != nil {
		t.Fatal(err)
	}
	for name, der := range map[string][]byte{
		"zeroes":         encode(pkcs1{0, n(0), 0, n(0), n(0), n(0), n(0), n(0), n(0)}),
		"small":          encode(pkcs1{0, n(15), 3, n(3), n(3), n(5), n(1), n(3), n(2)}),
		"negative":       encode(pkcs1{0, n(-15), -3, n(-3), n(-3), n(5), n(1), n(3), n(2)}),
		"a prime of one": encode(pkcs1{0, big.NewInt(0).Lsh(n(1), 1100), 3, n(3), n(1), big.NewInt(0).Lsh(n(1), 1100), n(1), n(3), n(2)}),
		"huge":           encode(pkcs1{0, big1, 3, big1, big1, big1, big1, big1, big1}),
		"X25519":         x25519,
		"nothing":        nil,
	} {
		if _, problem := privateKeyOf(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), leaf); problem != ProblemPrivateKey {
			t.Errorf("%s: %q", name, problem)
		}
	}
	encrypted := "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
	if _, problem := privateKeyOf([]byte(encrypted), leaf); problem != ProblemEncryptedKey {
		t.Errorf("encrypted: %q", problem)
	}
}

func TestCertificatesAreRebuilt(t *testing.T) {
	a, b := admin().cert, other().cert
	withHeader := strings.Replace(a, "-----BEGIN CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nX: y\n\n", 1)
	for name, test := range map[string]struct {
		data, want string
		others     int
	}{
		"one":                {a, a, 0},
		"two":                {a + b, a + b, 0},
		"two, text between":  {"first\n" + a + "\n\nsecond\n" + b + "last", a + b, 0},
		"no newline behind":  {strings.TrimSpace(a), a, 0},
		"headers":            {withHeader, a, 0},
		"keys between":       {admin().key + a + other().key + b, a + b, 2},
		"indented with CRLF": {strings.ReplaceAll(a, "\n", "\r\n"), a, 0},
	} {
		others := 0
		got, first, problem := certificatesOf([]byte(test.data), func() { others++ })
		if problem != "" || string(got) != test.want || others != test.others || first == nil {
			t.Errorf("%s: %q, %d other blocks, rebuilt as\n%s", name, problem, others, got)
		}
	}
}

// TestEveryCertificateCounts shows that no certificate is lost because it is damaged, wherever it stands.
func TestEveryCertificateCounts(t *testing.T) {
	a, b := admin().cert, other().cert
	middle := len(a) / 2
	for name, data := range map[string]string{
		"cut off in front":               a[:middle] + "\n" + b,
		"cut off in front, without line": a[:middle] + b,
		"cut off between":                b + a[:middle] + "\n" + b,
		"cut off behind":                 b + a[:middle],
		"a beginning in front":           "-----BEGIN CERTIFICATE-----\n" + b,
		"another end":                    strings.Replace(a, "END CERTIFICATE", "END CERTIFICATES", 1) + b,
		"no base64":                      a[:middle] + "!" + a[middle:] + b,
		"indented":                       "  " + strings.ReplaceAll(a, "\n", "\n  ") + "\n" + b,
	} {
		if got, _, problem := certificatesOf([]byte(data), func() {}); problem != ProblemTruncated {
			t.Errorf("%s: %q, rebuilt as\n%s", name, problem, got)
		}
	}
}
