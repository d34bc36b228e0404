package aggregate

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
)

// began is when a bubble of synctest begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// shownFleet is a handler of a fleet with one of everything that can be shown.
func shownFleet(t *testing.T) *statusHandler {
	t.Helper()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := p.StatusHandler().(*statusHandler)
	h.backends = func() []BackendStatus {
		return []BackendStatus{
			{Name: "profiles", Prefix: "prod", Synced: true, Members: 2},
			{Name: "capi", Prefix: "prod", Members: 1, Health: backends.Health{Reason: backends.ReasonHubUnreachable, Message: "no answer"}},
		}
	}
	elsewhere := time.FixedZone("elsewhere", 2*60*60)
	h.clusters = func() []ClusterStatus {
		return []ClusterStatus{
			{
				Name: "prod/a", Backend: "profiles", Member: "a", State: backends.Engaged, Reason: backends.ReasonDuplicate,
				Message: "the same cluster as prod/0", Since: began.Add(-time.Hour).In(elsewhere), Version: "v1.36.3", UID: "uid", User: "somebody",
				DuplicateOf: "prod/0",
				Candidates: []Candidate{
					{Backend: "profiles", Member: "a", State: backends.Engaged, Reason: backends.ReasonDuplicate, UID: "uid", Proved: began.Add(-time.Minute)},
					{Backend: "capi", Member: "a", State: backends.Shadowed, Reason: backends.ReasonIdentityDiffers, Message: "another"},
				},
				Info:   backends.Info{Labels: map[string]string{"label": "1"}, Annotations: map[string]string{"annotation": "1"}},
				Source: backends.ObjectReference{Kind: "ClusterProfile", Namespace: "ns", Name: "a"},
			},
			{
				Name: "prod/b", Backend: "profiles", Member: "b", State: backends.Connecting, Reason: backends.ReasonTLSFailed,
				Message: `<script>alert("b")</script>`, Since: began.Add(-time.Second), Attempt: 3, NextTry: began.Add(time.Minute + time.Millisecond),
			},
			{Name: "prod/c", State: backends.Draining, Reason: backends.ReasonDeleted, Since: began},
		}
	}
	return h
}

func ask(h http.Handler, method, target string, accept ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Header["Accept"] = accept
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The JSON is what other programs read: a change of what is here breaks them.
func TestStatusJSON(t *testing.T) {
	const want = `{
  "time": "2000-01-01T00:00:00Z",
  "summary": {
    "clusters": 3,
    "states": {
      "Connecting": 1,
      "Draining": 1,
      "Engaged": 1
    }
  },
  "backends": [
    {
      "name": "profiles",
      "prefix": "prod",
      "synced": true,
      "members": 2,
      "states": {
        "Connecting": 1,
        "Engaged": 1
      }
    },
    {
      "name": "capi",
      "prefix": "prod",
      "health": {
        "reason": "HubUnreachable",
        "message": "no answer"
      },
      "synced": false,
      "members": 1,
      "states": {}
    }
  ],
  "clusters": [
    {
      "name": "prod/a",
      "backend": "profiles",
      "member": "a",
      "state": "Engaged",
      "reason": "Duplicate",
      "message": "the same cluster as prod/0",
      "since": "1999-12-31T23:00:00Z",
      "version": "v1.36.3",
      "uid": "uid",
      "duplicateOf": "prod/0",
      "candidates": [
        {
          "backend": "profiles",
          "member": "a",
          "state": "Engaged",
          "reason": "Duplicate",
          "uid": "uid",
          "proved": "1999-12-31T23:59:00Z"
        },
        {
          "backend": "capi",
          "member": "a",
          "state": "Shadowed",
          "reason": "IdentityDiffers",
          "message": "another"
        }
      ],
      "source": "ClusterProfile ns/a"
    },
    {
      "name": "prod/b",
      "backend": "profiles",
      "member": "b",
      "state": "Connecting",
      "reason": "TLSFailed",
      "message": "\u003cscript\u003ealert(\"b\")\u003c/script\u003e",
      "since": "1999-12-31T23:59:59Z",
      "attempt": 3,
      "nextTry": "2000-01-01T00:01:00Z"
    },
    {
      "name": "prod/c",
      "state": "Draining",
      "reason": "Deleted",
      "since": "2000-01-01T00:00:00Z"
    }
  ]
}
`
	synctest.Test(t, func(t *testing.T) {
		w := ask(shownFleet(t), http.MethodGet, "/fleet")
		if diff := cmp.Diff(want, w.Body.String()); diff != "" {
			t.Errorf("JSON (-want +got):\n%s", diff)
		}
	})
}

// The page shows the same to people, with every link and class as it was meant, whatever clusters say.
func TestStatusPage(t *testing.T) {
	h := shownFleet(t)
	hostile := `"><script>alert(1)</script>'&`
	clusters := h.clusters()
	clusters = append(clusters, ClusterStatus{
		Name: "prod/" + "<b>", Backend: hostile, Member: hostile, State: backends.State(hostile), Reason: backends.Reason(hostile),
		Message: hostile, Version: hostile, UID: hostile, DuplicateOf: "<b>",
		Candidates: []Candidate{{Backend: hostile, State: backends.State(hostile), Reason: backends.Reason(hostile), Message: hostile}},
	})
	h.clusters = func() []ClusterStatus { return clusters }
	h.backends = func() []BackendStatus {
		return []BackendStatus{{Name: "profiles"}, {Name: hostile, Prefix: hostile, Health: backends.Health{Reason: backends.Reason(hostile), Message: hostile}}}
	}
	page := ask(h, http.MethodGet, "/fleet?format=html&state=%3Cscript%3E&state=Engaged&state=Connecting&state="+
		"%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E%27%26").Body.String()
	for _, forbidden := range []string{"<script", "<b>", `"">`, "ZgotmplZ"} {
		if strings.Contains(page, forbidden) {
			t.Errorf("the page has %q in it:\n%s", forbidden, page)
		}
	}
	for _, has := range []string{
		"<td>prod/a<small>the same cluster as prod/0</small></td>",
		"<td>profiles<small>profiles: Engaged Duplicate</small><small>capi: Shadowed IdentityDiffers</small></td>",
		`<td class="Connecting">Connecting</td><td>TLSFailed</td>`,
		"<td>1999-12-31T23:00:00Z</td><td>v1.36.3</td>",
		"<td>2000-01-01T00:01:00Z<small>after 3 failed</small></td>",
		`<a href="?format=html&amp;state=Engaged">1 <span class="Engaged">Engaged</span></a>`,
		`<a href="?format=html&amp;backend=profiles&amp;state=Engaged">1 Engaged</a>`,
		`<a href="?format=html&amp;backend=profiles">profiles</a></td><td></td>` + "\n<td>well</td>",
		"state Engaged", `<a href="?format=html">show all</a>`,
	} {
		if !strings.Contains(page, has) {
			t.Errorf("the page lacks %q:\n%s", has, page)
		}
	}
	if n := strings.Count(html.UnescapeString(page), hostile); n < 12 {
		t.Errorf("the page shows %d hostile texts, want all of them:\n%s", n, page)
	}
}

func TestStatusChoosesFormat(t *testing.T) {
	const (
		page   = "text/html; charset=utf-8"
		object = "application/json"
	)
	h := shownFleet(t)
	for _, c := range []struct {
		name, target string
		accept       []string
		want         string
	}{
		{"nothing said", "/", nil, object},
		{"a browser", "/", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}, page},
		{"curl", "/", []string{"*/*"}, object},
		{"a program", "/", []string{"application/json"}, object},
		{"two lines", "/", []string{"application/json;q=0.5", "Text/HTML"}, page},
		{"rather JSON", "/", []string{"text/html;q=0.5, application/*"}, object},
		{"anything but JSON", "/", []string{"*/*, application/json;q=0"}, page},
		{"any text", "/", []string{"text/*"}, page},
		{"neither", "/", []string{"image/png"}, object},
		{"rubbish", "/", []string{"text/html;q=much, ;;, text/"}, object},
		{"a browser that is told otherwise", "/?format=json", []string{"text/html"}, object},
		{"a program that is told otherwise", "/?format=html", []string{"application/json"}, page},
	} {
		w := ask(h, http.MethodGet, c.target, c.accept...)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != c.want {
			t.Errorf("%s: %d %s, want %s", c.name, w.Code, got, c.want)
		}
		if byHeader := c.target == "/"; w.Header().Get("Cache-Control") != "no-store" || byHeader != (w.Header().Get("Vary") == "Accept") {
			t.Errorf("%s: headers of caching: %v", c.name, w.Header())
		}
	}
}

func TestStatusRefuses(t *testing.T) {
	h := shownFleet(t)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodConnect, "get"} {
		w := ask(h, method, "/")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, %v", method, w.Code, w.Header())
		}
	}
	if w := ask(h, http.MethodGet, "/?format=%3Cb%3E"); w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), "<b>") {
		t.Errorf("an unknown format: %d %s", w.Code, w.Body)
	}
	get, head := ask(h, http.MethodGet, "/?format=html"), ask(h, http.MethodHead, "/?format=html")
	if head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("Content-Length") != get.Header().Get("Content-Length") {
		t.Errorf("HEAD: %d, %d bytes, %v", head.Code, head.Body.Len(), head.Header())
	}
}

// Clusters are chosen by their state and by all backends that list them; the numbers are those of the whole fleet.
func TestStatusChoosesClusters(t *testing.T) {
	h := shownFleet(t)
	for query, want := range map[string][]string{
		"":                                {"prod/a", "prod/b", "prod/c"},
		"state=Engaged":                   {"prod/a"},
		"state=Engaged&state=Draining":    {"prod/a", "prod/c"},
		"backend=profiles":                {"prod/a", "prod/b"},
		"backend=capi":                    {"prod/a"},
		"backend=capi&state=Connecting":   {},
		"backend=profiles&state=Engaged":  {"prod/a"},
		"state=engaged":                   {},
		"backend=unknown":                 {},
		"state=Connecting&something=else": {"prod/b"},
	} {
		var got struct {
			Summary  struct{ Clusters int }
			Backends []struct{ Name string }
			Clusters []struct{ Name string }
		}
		if err := json.Unmarshal(ask(h, http.MethodGet, "/?"+query).Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, c := range got.Clusters {
			names = append(names, c.Name)
		}
		if diff := cmp.Diff(want, names); diff != "" || got.Summary.Clusters != 3 || len(got.Backends) != 2 {
			t.Errorf("?%s (-want +got):\n%s%+v", query, diff, got)
		}
	}
}
