package connection

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
)

// Fingerprint is a digest of content. Within one process, equal content has equal fingerprints, and different
// content different ones. It is keyed with a random key of the process: an unkeyed digest of a weak password would
// let everybody who reads a log try passwords against it. So fingerprints are safe to show, and mean nothing to
// another process or after a restart; do not store them.
type Fingerprint [sha256.Size]byte

// String returns the first eight hexadecimal digits: enough to tell two apart in a log.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:4]) }

// processKey is made once and never changes.
var processKey = sync.OnceValue(func() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails: the program is ended instead
	return key
})

// DigestOf returns the fingerprint of a Secret's data as it is, so that data that did not change is recognised
// without parsing it. No data and empty data are equal.
func DigestOf(data map[string][]byte) Fingerprint {
	size := 0
	for k, v := range data {
		size += len(k) + len(v) + 16
	}
	d := newDigest(size + 8)
	d.len(len(data))
	for _, k := range slices.Sorted(maps.Keys(data)) {
		d.strings(k)
		d.bytes(data[k])
	}
	return d.sum()
}

// digest collects values, each behind its length, so that no two different sequences collide.
type digest struct{ content []byte }

func newDigest(size int) *digest { return &digest{make([]byte, 0, size)} }

func (d *digest) bytes(b []byte) {
	d.len(len(b))
	d.content = append(d.content, b...)
}

func (d *digest) strings(ss ...string) {
	for _, s := range ss {
		d.len(len(s))
		d.content = append(d.content, s...)
	}
}

func (d *digest) bool(b bool) {
	if b {
		d.strings("1")
	} else {
		d.strings("0")
	}
}

func (d *digest) len(n int) { d.content = binary.BigEndian.AppendUint64(d.content, uint64(n)) }

func (d *digest) sum() (f Fingerprint) {
	h := hmac.New(sha256.New, processKey())
	h.Write(d.content)
	h.Sum(f[:0])
	return f
}

// EndpointFingerprint covers where the cluster is and how it is recognised.
func (s Spec) EndpointFingerprint() Fingerprint {
	e := s.Endpoint
	d := newDigest(256 + len(e.CAData))
	d.strings("endpoint", e.Server)
	d.bytes(e.CAData)
	d.strings(e.TLSServerName)
	d.bool(e.InsecureSkipTLSVerify)
	d.strings(e.Proxy.URL, e.Proxy.Username, e.Proxy.Password.Reveal())
	d.bool(e.DisableCompression)
	return d.sum()
}

// AuthFingerprint covers how to authenticate.
func (s Spec) AuthFingerprint() Fingerprint {
	a := s.Auth
	d := newDigest(512 + len(a.ClientCertificateData) + len(a.Token.Reveal()) + len(a.ClientKeyData.Reveal()))
	d.strings("auth", a.Token.Reveal())
	d.bytes(a.ClientCertificateData)
	d.strings(a.ClientKeyData.Reveal(), a.Username, a.Password.Reveal())
	d.bool(a.Exec != nil)
	if x := a.Exec; x != nil {
		d.strings(x.Command, x.APIVersion, x.ClusterConfig.Reveal())
		d.bool(x.ProvideClusterInfo)
		d.len(len(x.Args))
		for _, arg := range x.Args {
			d.strings(arg.Reveal())
		}
		d.len(len(x.Env))
		for _, v := range x.Env {
			d.strings(v.Name, v.Value.Reveal())
			d.bool(v.Configured)
		}
	}
	i := a.Impersonate
	d.strings(i.UserName, i.UID)
	d.len(len(i.Groups))
	d.strings(i.Groups...)
	d.len(len(i.Extra))
	for _, k := range slices.Sorted(maps.Keys(i.Extra)) {
		d.strings(k)
		d.len(len(i.Extra[k]))
		d.strings(i.Extra[k]...)
	}
	return d.sum()
}
