package connection

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
)

// certificatesOf returns the certificates in data, rebuilt: without text around them, other blocks and PEM headers.
// Equal certificates have equal bytes afterwards, and no private key is carried along. It also returns the first of
// them, parsed, and calls other for each block that is no certificate. Every block counts: pem.Decode passes over one
// that is cut off, wherever it stands, and a CA would be missing without a word.
func certificatesOf(data []byte, other func()) (rebuilt []byte, first *x509.Certificate, _ Problem) {
	var out bytes.Buffer
	out.Grow(len(data))
	blocks := 0
	for rest := data; ; blocks++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			other()
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, ProblemCertificate
		}
		if first == nil {
			first = certificate
		}
		block.Headers = nil
		_ = pem.Encode(&out, block) // a bytes.Buffer takes everything
	}
	switch {
	case bytes.Count(data, []byte("-----BEGIN ")) != blocks:
		return nil, nil, ProblemTruncated
	case first == nil && pemTwice(data):
		return nil, nil, ProblemDoubleBase64
	case first == nil:
		return nil, nil, ProblemNotPEM
	}
	return out.Bytes(), first, ""
}

// privateKeyOf returns the first private key in data, rebuilt, if it belongs to the certificate.
func privateKeyOf(data []byte, certificate *x509.Certificate) (string, Problem) {
	rest := data
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && bytes.Contains(rest, []byte("-----BEGIN ")):
			return "", ProblemTruncated
		case block == nil && pemTwice(data):
			return "", ProblemDoubleBase64
		case block == nil:
			return "", ProblemNotPEM
		case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return "", ProblemEncryptedKey
		case block.Type != "PRIVATE KEY" && !strings.HasSuffix(block.Type, " PRIVATE KEY"):
			continue
		}
		const largest = 16 << 10 // above that of RSA with 16,384 bits; computing with larger numbers takes too long
		if len(block.Bytes) > largest {
			return "", ProblemPrivateKey
		}
		public := publicKeyOf(block.Bytes)
		if public == nil {
			return "", ProblemPrivateKey
		}
		if !public.Equal(certificate.PublicKey) {
			return "", ProblemKeyMismatch
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})), ""
	}
}

// publicKey is what every public key of the standard library can do.
type publicKey interface{ Equal(crypto.PublicKey) bool }

// publicKeyOf returns the public key of a private key in PKCS #1, PKCS #8 or SEC 1 (as package tls takes them), or
// nil if it is none of these.
func publicKeyOf(der []byte) publicKey {
	if public := publicRSA(der); public != nil {
		return public
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return &key.PublicKey
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil // a key of X25519, which cannot sign
	}
	public, _ := signer.Public().(publicKey)
	return public
}

// publicRSA returns the public key of an RSA key in PKCS #1 or PKCS #8. Package x509 would prepare the key for use,
// which takes longer than all the rest of parsing a kubeconfig. Here it is enough that the numbers fit together
// (RFC 8017, section 3.2), so that damage is found; whether the factors are prime is not asked.
func publicRSA(der []byte) *rsa.PublicKey {
	var wrapped struct { // RFC 5208
		Version   int
		Algorithm struct {
			Name       asn1.ObjectIdentifier
			Parameters asn1.RawValue `asn1:"optional"`
		}
		Key        []byte
		Attributes asn1.RawValue `asn1:"optional,tag:0"`
	}
	if rest, err := asn1.Unmarshal(der, &wrapped); err == nil && len(rest) == 0 {
		if !wrapped.Algorithm.Name.Equal(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}) {
			return nil
		}
		der = wrapped.Key
	}
	var key struct { // RFC 8017, appendix A.1.2
		Version                   int
		N                         *big.Int
		E                         int
		D, P, Q, DP, DQ, QInverse *big.Int
	}
	if rest, err := asn1.Unmarshal(der, &key); err != nil || len(rest) != 0 || key.Version != 0 {
		return nil
	}
	one := big.NewInt(1)
	for _, n := range []*big.Int{key.D, key.P, key.Q, key.DP, key.DQ, key.QInverse} {
		if n.Sign() <= 0 {
			return nil
		}
	}
	if key.N.BitLen() < 1024 || key.E < 3 || key.P.Cmp(one) <= 0 || key.Q.Cmp(one) <= 0 {
		return nil // package tls does not take it either
	}
	product := new(big.Int)
	if product.Mul(key.P, key.Q).Cmp(key.N) != 0 {
		return nil
	}
	e := big.NewInt(int64(key.E))
	inverse := func(a, b, modulus *big.Int) bool {
		return product.Mod(product.Mul(a, b), modulus).Cmp(one) == 0
	}
	p1, q1 := new(big.Int).Sub(key.P, one), new(big.Int).Sub(key.Q, one)
	if !inverse(e, key.D, p1) || !inverse(e, key.D, q1) || !inverse(e, key.DP, p1) || !inverse(e, key.DQ, q1) ||
		!inverse(key.QInverse, key.Q, key.P) {
		return nil
	}
	return &rsa.PublicKey{N: key.N, E: key.E}
}

// pemTwice reports whether data is PEM once more in base64.
func pemTwice(data []byte) bool {
	decoded, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
	return err == nil && bytes.Contains(decoded, []byte("-----BEGIN "))
}
