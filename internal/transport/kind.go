package transport

import (
	"net/http"
	"net/url"
	"strings"
)

// kind is what a request is, as far as deadlines and swaps are concerned.
type kind uint8

const (
	kindDiscovery kind = iota
	kindRead
	kindWrite
	kindList
	kindWatch
	kindSession // a log follow or a request proxied to a node, pod or service: open-ended, and not a watch
	kindUpgrade
)

var kindNames = [...]string{"discovery", "read", "write", "list", "watch", "session", "upgrade"}

func (k kind) String() string { return kindNames[k] }

// openEnded reports whether a request of this kind may take for ever once the answer's header has arrived.
func (k kind) openEnded() bool { return k >= kindWatch }

// classify tells a request's kind by the rules of the API's paths. It is on the path of every request and allocates nothing
// for ordinary ones. A path that is no Kubernetes path is a read or a write.
func classify(r *http.Request) kind {
	if isUpgrade(r.Header) {
		return kindUpgrade
	}
	get := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == ""
	p := strings.Trim(r.URL.Path, "/")
	root, rest, _ := strings.Cut(p, "/")
	switch root {
	case "api":
		_, rest, _ = strings.Cut(rest, "/") // version
	case "apis":
		_, rest, _ = strings.Cut(rest, "/") // group
		_, rest, _ = strings.Cut(rest, "/") // version
	case "openapi":
		return kindList
	case "", "version", "healthz", "livez", "readyz":
		return kindDiscovery
	default:
		return readOrWrite(get)
	}
	if rest == "" {
		return kindDiscovery
	}
	if watchPath, ok := strings.CutPrefix(rest, "watch/"); ok && get && watchPath != "" {
		return kindWatch
	}
	return classifyResource(rest, r.URL.RawQuery, r.Method, get)
}

// classifyResource tells the kind from the part of the path behind the version.
func classifyResource(rest, query, method string, get bool) kind {
	// A namespace is a resource of its own too: namespaces/x is one object, namespaces/x/pods a collection.
	if ns, ok := strings.CutPrefix(rest, "namespaces/"); ok {
		if _, in, ok := strings.Cut(ns, "/"); ok && in != "" {
			rest = in
		}
	}
	_, name, named := strings.Cut(rest, "/")
	name, sub, _ := strings.Cut(name, "/")
	sub, _, _ = strings.Cut(sub, "/")
	if sub == "proxy" {
		return kindSession
	}
	if get && sub == "log" && boolParameter(query, "follow") {
		return kindSession
	}
	// A watch of one object is either a collection's watch with a field selector or, in the old way, a GET with a name.
	if get && boolParameter(query, "watch") {
		return kindWatch
	}
	if !named || name == "" {
		if get || method == http.MethodDelete {
			return kindList
		}
	}
	return readOrWrite(get)
}

// isProxied reports whether a path leads through the API server to a node, pod or service.
func isProxied(path string) bool {
	root, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if root != "api" && root != "apis" {
		return false
	}
	// Whatever is called proxy at the place of a subresource: behind version, resource and name, in a namespace or not.
	segments := strings.SplitN(rest, "/", 8)
	if root == "apis" {
		segments = segments[min(1, len(segments)):]
	}
	if len(segments) > 3 && segments[1] == "namespaces" {
		segments = segments[2:]
	}
	return len(segments) > 3 && segments[3] == "proxy"
}

func readOrWrite(get bool) kind {
	if get {
		return kindRead
	}
	return kindWrite
}

// isUpgrade reports whether the request asks to leave HTTP: SPDY or WebSocket, for exec, attach and port-forward.
func isUpgrade(h http.Header) bool {
	for _, v := range h["Connection"] {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// boolParameter reads a boolean query parameter as the API server does (apimachinery, Convert_Slice_string_To_bool):
// the first value counts, and everything but "0" and "false" is true, even the empty string.
func boolParameter(query, name string) bool {
	v, ok := parameter(query, name)
	return ok && v != "0" && !strings.EqualFold(v, "false")
}

// parameter returns the first value of a query parameter.
func parameter(query, name string) (string, bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key != name {
			if !strings.Contains(key, "%") {
				continue
			}
			if k, err := url.QueryUnescape(key); err != nil || k != name {
				continue
			}
		}
		if v, err := url.QueryUnescape(value); err == nil {
			return v, true
		}
	}
	return "", false
}
