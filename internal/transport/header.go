package transport

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/tributary-fleet/tributary/connection"
)

func canonical(key string) string { return textproto.CanonicalMIMEHeaderKey(key) }

// validHeaderValue reports whether an HTTP header can carry the value (RFC 9110, 5.5).
func validHeaderValue(v string) bool {
	for i := range len(v) {
		if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// escapeHeaderKey escapes the key of an impersonated extra value as the API server expects it: every byte that may not stand in the
// name of a header, and the percent sign, as %XX.
func escapeHeaderKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if c != '%' && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0) {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

const impersonatePrefix = "Impersonate-"

// header returns the header to send for a request with the header in. An empty value of the caller's counts as none: the API server would take
// it for none too, and authorize the credential itself where the connection says on whose behalf it acts. A caller that names no user
// impersonates nobody, so the rest of what it says about that is not mixed into the connection's.
func (g *Generation) header(in http.Header, auth []string) http.Header {
	own := in.Get("Impersonate-User") != ""
	// The values are shared with the request and with g: net/http does not write to them.
	h := make(http.Header, len(in)+1+len(g.headers))
	for k, v := range in {
		if len(k) > len(impersonatePrefix) && strings.EqualFold(k[:len(impersonatePrefix)], impersonatePrefix) &&
			(g.impersonates && !own || !slices.ContainsFunc(v, func(s string) bool { return s != "" })) {
			continue
		}
		h[k] = v
	}
	if auth != nil && !authorizes(in) {
		h["Authorization"] = auth
	}
	for _, add := range g.headers {
		if add.impersonates && own || !add.impersonates && len(h[add.key]) != 0 {
			continue
		}
		h[add.key] = add.values
	}
	return h
}

// authorizes reports whether a request brings a credential of its own.
func authorizes(h http.Header) bool { return h.Get("Authorization") != "" }

// secretsOf returns every string of the connection that no error may hold, in the forms in which it is sent.
func secretsOf(s connection.Spec) (out []string) {
	pair := func(user string, password connection.Secret) {
		if p := password.Reveal(); p != "" {
			out = addSecret(out, p, url.QueryEscape(p), url.UserPassword("", p).String(), base64.StdEncoding.EncodeToString([]byte(user+":"+p)))
		}
	}
	out = addSecret(out, s.Auth.Token.Reveal(), strings.TrimSpace(s.Auth.ClientKeyData.Reveal()))
	pair(s.Auth.Username, s.Auth.Password)
	pair(s.Endpoint.Proxy.Username, s.Endpoint.Proxy.Password)
	return out
}

// addSecret adds strings that no error may hold. Very short ones are left out: they would be found in any text, and hide
// errors rather than credentials.
func addSecret(to []string, values ...string) []string {
	for _, v := range values {
		if len(v) >= 4 {
			to = append(to, v)
		}
	}
	return to
}
