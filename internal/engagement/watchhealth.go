package engagement

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tributary-fleet/tributary/backends"
)

// watchHealth is a round tripper that takes note of how the cluster's watches fare. A watch that is refused for
// good (401, 403) is reported, and harms no other; one of a kind that is not there any longer has the
// kinds looked up anew. Everything else passes, and is the reflector's to repeat.
type watchHealth struct {
	next    http.RoundTripper
	missing func() // asks for the kinds to be looked up; returns at once

	mu      sync.Mutex
	refused map[string]int // path of the watched resource → HTTP status
	pending []schema.GroupVersionKind
	told    WatchesChanged
	// changed is called, without mu, when what is to be told has changed. Nil until the cluster is engaged.
	changed func(WatchesChanged)
}

// RoundTrip implements http.RoundTripper.
func (h *watchHealth) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodGet || !isWatch(req.URL.RawQuery) {
		return resp, err
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		h.missing()
		h.note(req.URL.Path, 0)
	case http.StatusUnauthorized, http.StatusForbidden:
		h.note(req.URL.Path, resp.StatusCode)
	case http.StatusOK:
		h.note(req.URL.Path, 0)
	}
	return resp, err
}

func isWatch(query string) bool {
	i := strings.Index(query, "watch=")
	if i < 0 || (i > 0 && query[i-1] != '&') {
		return false
	}
	value, _, _ := strings.Cut(query[i+len("watch="):], "&")
	return value == "true" || value == "1"
}

// note notes the outcome of a watch: a status to report, or 0.
func (h *watchHealth) note(path string, status int) {
	h.mu.Lock()
	if h.refused[path] == status {
		h.mu.Unlock()
		return
	}
	if status == 0 {
		delete(h.refused, path)
	} else {
		if h.refused == nil {
			h.refused = map[string]int{}
		}
		h.refused[path] = status
	}
	h.tell()
}

// setPending notes the kinds that are waited for.
func (h *watchHealth) setPending(kinds []schema.GroupVersionKind) {
	h.mu.Lock()
	h.pending = kinds
	h.tell()
}

// listen has changes told to f from now on.
func (h *watchHealth) listen(f func(WatchesChanged)) {
	h.mu.Lock()
	h.changed = f
	h.tell()
}

// forget drops what is known of a resource that is not watched any longer.
func (h *watchHealth) forget(r schema.GroupVersionResource) {
	h.mu.Lock()
	maps.DeleteFunc(h.refused, func(path string, _ int) bool { return watches(path, r) })
	h.tell()
}

// watches reports whether the path is that of the resource's objects, in all namespaces or in one.
func watches(path string, r schema.GroupVersionResource) bool {
	root := "/apis/" + r.Group + "/" + r.Version + "/"
	if r.Group == "" {
		root = "/api/" + r.Version + "/"
	}
	rest, ok := strings.CutPrefix(path, root)
	if !ok {
		return false
	}
	if namespaced, ok := strings.CutPrefix(rest, "namespaces/"); ok {
		if _, resource, ok := strings.Cut(namespaced, "/"); ok {
			rest = resource
		}
	}
	return rest == r.Resource
}

// tell calls the listener if there is something new. The caller holds mu, which tell releases.
func (h *watchHealth) tell() {
	var now WatchesChanged
	if paths := slices.Sorted(maps.Keys(h.refused)); len(paths) > 0 {
		now.Failed = Failure{backends.ReasonWatchRefused, (&statusError{h.refused[paths[0]]}).Error() + " to watching " + strings.Join(paths, ", ")}
	}
	if len(h.pending) > 0 {
		names := make([]string, len(h.pending))
		for i, k := range h.pending {
			names[i] = k.GroupKind().String()
		}
		now.Pending = "not served: " + strings.Join(names, ", ")
	}
	changed := h.changed
	now.Order = h.told.Order
	if changed == nil || now == h.told {
		h.mu.Unlock()
		return
	}
	now.Order++
	h.told = now
	h.mu.Unlock()
	changed(now)
}
