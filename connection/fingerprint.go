package connection

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
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
	d := newDigest()
	d.len(len(data))
	for _, k := range slices.Sorted(maps.Keys(data)) {
		d.strings(k)
		d.bytes(data[k])
	}
	return d.sum()
}

// digest writes values into a keyed hash, each behind its length, so that no two different sequences collide.
type digest struct{ h hash.Hash }

func newDigest() digest { return digest{hmac.New(sha256.New, processKey())} }

func (d digest) bytes(b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	d.h.Write(n[:])
	d.h.Write(b)
}

func (d digest) strings(ss ...string) {
	for _, s := range ss {
		d.bytes([]byte(s))
	}
}

func (d digest) bool(b bool) {
	if b {
		d.strings("1")
	} else {
		d.strings("0")
	}
}

func (d digest) len(n int) { d.bytes(binary.BigEndian.AppendUint64(nil, uint64(n))) }

func (d digest) sum() (f Fingerprint) {
	d.h.Sum(f[:0])
	return f
}

// EndpointFingerprint covers where the cluster is and how it is recognised.
func (s Spec) EndpointFingerprint() Fingerprint {
	e, d := s.Endpoint, newDigest()
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
	a, d := s.Auth, newDigest()
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
