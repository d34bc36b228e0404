package connection

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
)

// certificatesOf returns the certificates in data, rebuilt: without text around them, other blocks and PEM headers.
// Equal certificates have equal bytes afterwards, and no private key is carried along. It calls other for each
// block that is no certificate.
func certificatesOf(data []byte, other func()) ([]byte, Problem) {
	out := make([]byte, 0, len(data))
	rest := data
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			other()
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, ProblemCertificate
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	switch {
	case bytes.Contains(rest, []byte("-----BEGIN ")):
		return nil, ProblemTruncated
	case len(out) == 0 && pemTwice(data):
		return nil, ProblemDoubleBase64
	case len(out) == 0:
		return nil, ProblemNotPEM
	}
	return out, ""
}

// privateKeyOf returns the private key in data, rebuilt, if it belongs to the first of the certificates.
func privateKeyOf(data, certificates []byte) (string, Problem) {
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
		key := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		if _, err := tls.X509KeyPair(certificates, key); err == nil {
			return string(key), ""
		}
		if parsesAsKey(block.Bytes) {
			return "", ProblemKeyMismatch
		}
		return "", ProblemPrivateKey
	}
}

func parsesAsKey(der []byte) bool {
	if _, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		return true
	}
	if _, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return true
	}
	_, err := x509.ParseECPrivateKey(der)
	return err == nil
}

// pemTwice reports whether data is PEM once more in base64.
func pemTwice(data []byte) bool {
	decoded, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
	return err == nil && bytes.Contains(decoded, []byte("-----BEGIN "))
}
