package fakeapi

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// gitVersion is what the clusters say they are.
const gitVersion = "v1.36.3"

// maxBody bounds the body of a write.
const maxBody = 3 << 20

func (c *Cluster) serve(w http.ResponseWriter, r *http.Request) {
	if c.serveFault(w, r) {
		return
	}
	user, ok := c.user(r)
	if !ok {
		writeStatus(w, http.StatusUnauthorized, 0)
		return
	}
	switch r.URL.Path {
	case "/readyz", "/livez", "/healthz":
		_, _ = io.WriteString(w, "ok")
		return
	case "/version":
		writeJSON(w, http.StatusOK, version.Info{Major: "1", Minor: "36", GitVersion: gitVersion, Platform: "fake"})
		return
	}
	if r.Method == http.MethodGet && c.serveDiscovery(w, r) {
		return
	}
	c.mu.Lock()
	s := c.surface
	c.mu.Unlock()
	t, ok := s.parse(r.URL.Path)
	switch {
	case !ok:
		writeStatus(w, http.StatusNotFound, 0)
	case slices.Contains(s.broken, t.kind.Group):
		writeStatus(w, http.StatusServiceUnavailable, 0)
	case r.Method == http.MethodPost && t.kind.Kind == "SelfSubjectReview":
		writeJSON(w, http.StatusCreated, authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user}},
		})
	case r.Method == http.MethodPost && t.kind.Kind == "SelfSubjectAccessReview":
		c.reviewAccess(w, r)
	case r.Method == http.MethodGet && t.name == "":
		c.serveCollection(w, r, t)
	default:
		c.serveObject(w, r, t)
	}
}

// serveFault does what a fault says. Not done: the request is to be answered as usual.
func (c *Cluster) serveFault(w http.ResponseWriter, r *http.Request) (done bool) {
	fault := c.fault(r.URL.Path, faultproxy.Classify(r), true)
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return true
		}
	}
	switch {
	case fault.Hang:
		<-r.Context().Done()
	case fault.Garbage:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "<html>This is not the API server you are looking for.")
	case fault.Status != 0:
		writeStatus(w, fault.Status, fault.RetryAfter)
	default:
		return false
	}
	return true
}

// reviewAccess allows everything but what a fault forbids.
func (c *Cluster) reviewAccess(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeStatus(w, http.StatusBadRequest, 0)
		return
	}
	var review authorizationv1.SelfSubjectAccessReview
	u, err := decode(body)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &review)
	}
	if err != nil {
		writeStatus(w, http.StatusBadRequest, 0)
		return
	}
	review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	review.Status.Allowed = true
	if a := review.Spec.ResourceAttributes; a != nil {
		verb := faultproxy.Other
		switch a.Verb {
		case "list":
			verb = faultproxy.List
		case "watch":
			verb = faultproxy.Watch
		}
		review.Status.Allowed = c.fault(path(a), verb, false).Status != http.StatusForbidden
	}
	writeJSON(w, http.StatusCreated, review)
}

func path(a *authorizationv1.ResourceAttributes) string {
	p := "/api/" + a.Version
	if a.Group != "" {
		p = "/apis/" + a.Group + "/" + a.Version
	}
	if a.Version == "" || a.Version == "*" {
		p = strings.TrimSuffix(p, a.Version) + "v1"
	}
	if a.Namespace != "" {
		p += "/namespaces/" + a.Namespace
	}
	p += "/" + a.Resource
	if a.Name != "" {
		p += "/" + a.Name
	}
	return p
}

// serveCollection answers lists and watches.
func (c *Cluster) serveCollection(w http.ResponseWriter, r *http.Request, t target) {
	query := r.URL.Query()
	byLabels, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		writeStatus(w, http.StatusBadRequest, 0)
		return
	}
	byFields, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		writeStatus(w, http.StatusBadRequest, 0)
		return
	}
	selected := selection{t.namespace, byLabels, byFields}
	if watching, _ := strconv.ParseBool(query.Get("watch")); watching {
		c.serveWatch(w, r, t, selected)
		return
	}
	objects, revision := c.store.list(t.kind.key(), selected)
	items := make([]json.RawMessage, len(objects))
	for i, o := range objects {
		items[i] = o.body
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"apiVersion": t.kind.GroupVersion().String(), "kind": t.kind.Kind + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(revision)}, "items": items,
	})
}

// serveObject answers requests for one object, and creations.
func (c *Cluster) serveObject(w http.ResponseWriter, r *http.Request, t target) {
	if (r.Method == http.MethodPost) != (t.name == "") {
		writeStatus(w, http.StatusMethodNotAllowed, 0)
		return
	}
	key := t.kind.key()
	old, exists := c.store.get(key, t.namespace, t.name)
	if !exists && t.name != "" {
		writeStatus(w, http.StatusNotFound, 0)
		return
	}
	status := http.StatusOK
	switch r.Method {
	case http.MethodGet:
		writeBody(w, status, old.body)
		return
	case http.MethodDelete:
		if o, ok := c.store.delete(key, t.namespace, t.name); ok {
			writeBody(w, status, o.body)
		} else {
			writeStatus(w, http.StatusNotFound, 0)
		}
		return
	case http.MethodPost:
		status = http.StatusCreated
	case http.MethodPut:
	default:
		writeStatus(w, http.StatusMethodNotAllowed, 0)
		return
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeStatus(w, http.StatusBadRequest, 0)
		return
	}
	u, err := decode(body)
	if err != nil || u.Object == nil || u.GetName() == "" {
		writeStatus(w, http.StatusBadRequest, 0)
		return
	}
	u.SetNamespace(t.namespace)
	u.SetGroupVersionKind(t.kind.GroupVersionKind)
	if r.Method == http.MethodPost {
		if _, exists := c.store.get(key, t.namespace, u.GetName()); exists {
			writeStatus(w, http.StatusConflict, 0)
			return
		}
	} else if rv := u.GetResourceVersion(); rv != "" && rv != strconv.Itoa(old.revision) {
		writeStatus(w, http.StatusConflict, 0)
		return
	}
	o, err := c.store.put(key, u)
	if err != nil {
		writeStatus(w, http.StatusInternalServerError, 0)
		return
	}
	writeBody(w, status, o.body)
}

// writeStatus answers with a Status object, which is how API servers say what is wrong.
func writeStatus(w http.ResponseWriter, code int, retryAfter time.Duration) {
	seconds := int(math.Ceil(retryAfter.Seconds()))
	if seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	writeJSON(w, code, status(code, seconds))
}

func status(code, retryAfter int) metav1.Status {
	if code == http.StatusGone {
		s := apierrors.NewResourceExpired("too old resource version").Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		return s
	}
	text := strings.ToLower(http.StatusText(code))
	s := apierrors.NewGenericServerResponse(code, http.MethodGet, schema.GroupResource{}, "", text, retryAfter, false).Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return s
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "unencodable", http.StatusInternalServerError)
		return
	}
	writeBody(w, code, body)
}

func writeBody(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
