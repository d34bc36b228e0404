package restmapper

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer is a discovery endpoint whose content and faults can be changed while it runs.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	legacy   bool
	noTags   bool
	groups   []group                 // in the server's order
	stale    map[string]bool         // "group/version": marked Stale, without resources
	fail     map[string]http.Handler // by path
	requests map[string]int          // by "status path"
}

func newAPIServer(t testing.TB, groups []group) *apiServer {
	s := &apiServer{groups: groups, stale: map[string]bool{}, fail: map[string]http.Handler{}, requests: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) set(change func(*apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// count returns how often the path was asked for, and clears the counters.
func (s *apiServer) count() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := s.requests
	s.requests = map[string]int{}
	return counts
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, contentType, tag, body, fault := s.answer(r)
	if fault != nil {
		fault.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", contentType)
	if tag != "" {
		w.Header().Set("ETag", tag)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (s *apiServer) answer(r *http.Request) (status int, contentType, tag string, body []byte, fault http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.requests[fmt.Sprint(status, " ", r.URL.Path)]++ }()
	if f := s.fail[r.URL.Path]; f != nil {
		return 0, "", "", nil, f
	}
	isRoot := r.URL.Path == "/api" || r.URL.Path == "/apis"
	if isRoot && !s.legacy && strings.Contains(r.Header.Get("Accept"), "g=apidiscovery.k8s.io;v=v2;") {
		body = s.aggregated(r.URL.Path == "/api")
		if !s.noTags {
			tag = fmt.Sprintf("%q", hashOf([]group{{name: string(body)}}))
		}
		if tag != "" && r.Header.Get("If-None-Match") == tag {
			return http.StatusNotModified, "", tag, nil, nil
		}
		return http.StatusOK, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", tag, body, nil
	}
	if body = s.legacyBody(r.URL.Path); body == nil {
		return http.StatusNotFound, "application/json", "", []byte(`{"kind":"Status"}`), nil
	}
	return http.StatusOK, "application/json", "", body, nil
}

type object = map[string]any

func (s *apiServer) aggregated(core bool) []byte {
	items := []object{}
	for _, g := range s.groups {
		if (g.name == "") != core {
			continue
		}
		versions := []object{}
		for _, v := range g.versions {
			if s.stale[g.name+"/"+v.name] {
				versions = append(versions, object{"version": v.name, "freshness": "Stale"})
				continue
			}
			resources := []object{}
			for _, r := range v.resources {
				scope := "Cluster"
				if r.namespaced {
					scope = "Namespaced"
				}
				resources = append(resources, object{
					"resource": r.name, "singularResource": r.singular, "scope": scope,
					"responseKind": object{"group": g.name, "version": v.name, "kind": r.kind},
					"verbs":        []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
					"subresources": []object{{"subresource": "status", "responseKind": object{"kind": r.kind}, "verbs": []string{"get", "patch", "update"}}},
				})
			}
			versions = append(versions, object{"version": v.name, "freshness": "Current", "resources": resources})
		}
		items = append(items, object{"metadata": object{"name": g.name}, "versions": versions})
	}
	return marshal(object{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
}

func (s *apiServer) legacyBody(path string) []byte {
	groups := []object{}
	for _, g := range s.groups {
		versions := []object{}
		names := []string{}
		for _, v := range g.versions {
			if path == strings.Replace("/apis/"+g.name+"/"+v.name, "/apis//", "/api/", 1) {
				resources := []object{}
				for _, r := range v.resources {
					resources = append(resources,
						object{"name": r.name, "singularName": r.singular, "kind": r.kind, "namespaced": r.namespaced},
						object{"name": r.name + "/status", "kind": r.kind, "namespaced": r.namespaced})
				}
				return marshal(object{"kind": "APIResourceList", "resources": resources})
			}
			names = append(names, v.name)
			versions = append(versions, object{"groupVersion": g.name + "/" + v.name, "version": v.name})
		}
		if g.name == "" && path == "/api" {
			return marshal(object{"kind": "APIVersions", "versions": names})
		}
		if g.name != "" {
			groups = append(groups, object{"name": g.name, "versions": versions, "preferredVersion": versions[0]})
		}
	}
	if path == "/apis" {
		return marshal(object{"kind": "APIGroupList", "groups": groups})
	}
	return nil
}

func marshal(o object) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return b
}

// small is a cluster with a few kinds.
func small() []group {
	return []group{
		{"", []version{{"v1", []resource{
			{"configmaps", "configmap", "ConfigMap", true}, {"namespaces", "namespace", "Namespace", false}, {"pods", "pod", "Pod", true},
		}}}},
		{"apps", []version{{"v1", []resource{{"deployments", "deployment", "Deployment", true}}}}},
		{"autoscaling", []version{
			{"v2", []resource{{"horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", true}}},
			{"v1", []resource{{"horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", true}}},
		}},
		{"metrics.k8s.io", []version{{"v1beta1", []resource{{"pods", "", "PodMetrics", true}}}}},
	}
}

// crds is n further kinds, twenty to a group.
func crds(n int) []group {
	var groups []group
	for i := range n {
		if i%20 == 0 {
			groups = append(groups, group{fmt.Sprintf("g%d.example.com", i/20), []version{{name: "v1"}}})
		}
		v := &groups[len(groups)-1].versions[0]
		v.resources = append(v.resources, resource{fmt.Sprintf("widget%ds", i), fmt.Sprintf("widget%d", i), fmt.Sprintf("Widget%d", i), true})
	}
	return groups
}
