package connection

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// What formatting shows of a connection, whatever the verb or format: servers, user names, the kinds of credential,
// the names of environment variables and digests of certificates; and of tokens, keys, passwords, arguments and
// values only that they are there. The formats are for people and logs and cannot be read back.

// shown is what is shown of a value, in order.
type shown []shownField

type shownField struct {
	name  string
	value any // string, bool, int, []string, Impersonation or shown
}

// add appends a field, unless it is empty.
func (s *shown) add(name string, value any) {
	switch v := value.(type) {
	case string:
		if v == "" {
			return
		}
		value = clipped(v)
	case bool:
		if !v {
			return
		}
	case []string:
		if len(v) == 0 {
			return
		}
		value = clippedList(v)
	case shown:
		if len(v) == 0 {
			return
		}
	case Secret:
		if v.IsZero() {
			return
		}
		value = redacted
	}
	*s = append(*s, shownField{name, value})
}

// Names are data, which may have any length and number.
const (
	longestShown = 256 // bytes of a name
	mostShown    = 32  // names of a list
)

// clipped returns as much of a name as is shown.
func clipped(name string) string {
	if len(name) <= longestShown {
		return name
	}
	return strings.ToValidUTF8(name[:longestShown], "") + "…"
}

// clippedList returns as many names, and as much of each, as is shown.
func clippedList(names []string) []string {
	var shown []string
	for _, name := range names[:min(len(names), mostShown)] {
		shown = append(shown, clipped(name))
	}
	if more := len(names) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return shown
}

// String returns the fields in one line.
func (s shown) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, f := range s {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f.name)
		b.WriteByte(':')
		switch v := f.value.(type) {
		case string:
			if strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == '"' || !strconv.IsPrint(r) }) {
				v = strconv.Quote(v)
			}
			b.WriteString(v)
		case []string:
			fmt.Fprintf(&b, "%q", v)
		default:
			fmt.Fprint(&b, v)
		}
	}
	b.WriteByte('}')
	return b.String()
}

// object returns the fields as encoders and structured logs want them.
func (s shown) object() map[string]any {
	m := make(map[string]any, len(s))
	for _, f := range s {
		if inner, ok := f.value.(shown); ok {
			m[f.name] = inner.object()
		} else {
			m[f.name] = f.value
		}
	}
	return m
}

func (s shown) format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(f, text)
}

func (s shown) json() ([]byte, error) { return json.Marshal(s.object()) }

// digestOfPublic returns enough of a digest of something that is no secret to tell two apart, the same in every
// process.
func digestOfPublic(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:8])
}

func (s Spec) shown() (v shown) {
	v.add("endpoint", s.Endpoint.shown())
	v.add("auth", s.Auth.shown())
	v.add("endpointFingerprint", s.EndpointFingerprint().String())
	v.add("authFingerprint", s.AuthFingerprint().String())
	return v
}

func (e Endpoint) shown() (v shown) {
	v.add("server", e.Server)
	v.add("ca", digestOfPublic(e.CAData))
	v.add("tlsServerName", e.TLSServerName)
	v.add("insecureSkipTLSVerify", e.InsecureSkipTLSVerify)
	v.add("proxy", e.Proxy.shown())
	v.add("disableCompression", e.DisableCompression)
	return v
}

func (p Proxy) shown() (v shown) {
	v.add("url", p.URL)
	v.add("username", p.Username)
	v.add("password", p.Password)
	return v
}

func (a Auth) shown() (v shown) {
	v.add("token", a.Token)
	v.add("clientCertificate", digestOfPublic(a.ClientCertificateData))
	v.add("clientKey", a.ClientKeyData)
	v.add("username", a.Username)
	v.add("password", a.Password)
	if a.Exec != nil {
		v.add("exec", a.Exec.shown())
	}
	v.add("impersonate", a.Impersonate.shown())
	return v
}

func (e Exec) shown() (v shown) {
	v.add("command", e.Command)
	if len(e.Args) > 0 {
		v.add("args", len(e.Args))
	}
	names := make([]string, 0, len(e.Env))
	for _, variable := range e.Env {
		names = append(names, variable.Name)
	}
	v.add("env", names)
	v.add("apiVersion", e.APIVersion)
	v.add("provideClusterInfo", e.ProvideClusterInfo)
	v.add("clusterConfig", e.ClusterConfig)
	return v
}

func (v EnvVar) shown() (s shown) {
	s.add("name", v.Name)
	s.add("value", v.Value)
	s.add("configured", v.Configured)
	return s
}

func (i Impersonation) shown() (v shown) {
	v.add("userName", i.UserName)
	v.add("uid", i.UID)
	v.add("groups", i.Groups)
	if len(i.Extra) > 0 {
		extra := make(map[string][]string)
		for _, key := range slices.Sorted(maps.Keys(i.Extra))[:min(len(i.Extra), mostShown)] {
			extra[clipped(key)] = clippedList(i.Extra[key])
		}
		v.add("extra", extra)
	}
	return v
}
