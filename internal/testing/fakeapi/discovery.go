package fakeapi

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind that a cluster serves.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the plural name, "configmaps".
	Resource string
	// Cluster says that objects have no namespace.
	Cluster bool
}

// builtin are the kinds that every cluster serves. The reviews can only be created.
func builtin() []Kind {
	kind := func(group, kind, resource string, cluster bool) Kind {
		return Kind{schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, resource, cluster}
	}
	return []Kind{
		kind("", "ConfigMap", "configmaps", false),
		kind("", "Event", "events", false),
		kind("", "Namespace", "namespaces", true),
		kind("", "Secret", "secrets", false),
		kind("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", true),
		kind("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", true),
	}
}

func syntheticKinds(n int) []Kind {
	kinds := make([]Kind, n)
	for i := range kinds {
		kinds[i] = Kind{
			GroupVersionKind: schema.GroupVersionKind{
				Group: fmt.Sprintf("g%d.example.com", i/20), Version: "v1", Kind: fmt.Sprintf("Widget%d", i),
			},
			Resource: fmt.Sprintf("widget%ds", i),
		}
	}
	return kinds
}

// SetKinds makes the cluster serve the built-in kinds and n further ones: Widget0 (widget0s) and so on, namespaced, twenty to a
// group (g0.example.com …), version v1. What InstallKind, RemoveKind and BreakGroup did is undone.
func (c *Cluster) SetKinds(n int) {
	c.server.mu.Lock()
	shared := c.server.surfaceLocked(n)
	c.server.mu.Unlock()
	c.change(func(*surface) *surface { return shared })
}

// InstallKind makes the cluster serve a kind, as a CRD would.
func (c *Cluster) InstallKind(kind Kind) {
	c.edit(func(s *surface) { s.kinds = append(s.kinds, kind) })
}

// RemoveKind undoes InstallKind: objects are gone, and watches end.
func (c *Cluster) RemoveKind(kind Kind) {
	c.edit(func(s *surface) { s.kinds = slices.DeleteFunc(s.kinds, func(k Kind) bool { return k == kind }) })
}

// BreakGroup makes discovery of a group fail, and requests for its resources, as an aggregated API does whose backend is down. It is
// mended with broken false.
func (c *Cluster) BreakGroup(group string, broken bool) {
	c.edit(func(s *surface) {
		s.broken = slices.DeleteFunc(s.broken, func(g string) bool { return g == group })
		if broken {
			s.broken = append(s.broken, group)
		}
	})
}

// SetLegacyDiscovery makes the cluster answer as servers before Kubernetes 1.26, without aggregated discovery.
func (c *Cluster) SetLegacyDiscovery(legacy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.legacy = legacy
}

func (c *Cluster) edit(edit func(*surface)) {
	c.change(func(old *surface) *surface {
		s := &surface{kinds: slices.Clone(old.kinds), broken: slices.Clone(old.broken)}
		edit(s)
		return s
	})
}

func (c *Cluster) change(change func(*surface) *surface) {
	c.mu.Lock()
	old := c.surface
	now := change(old)
	c.surface = now
	c.mu.Unlock()
	for _, k := range old.kinds {
		if !slices.Contains(now.kinds, k) {
			c.store.drop(k.Group + "/" + k.Resource)
		}
	}
}

// surface is what a cluster serves; immutable, and shared by clusters that have not changed theirs.
type surface struct {
	kinds  []Kind
	broken []string // groups

	render      sync.Once
	core, other document
}

// document is an aggregated discovery document.
type document struct {
	body []byte
	tag  string
}

// find returns the kind of a resource.
func (s *surface) find(gvr schema.GroupVersionResource) (Kind, bool) {
	i := slices.IndexFunc(s.kinds, func(k Kind) bool {
		return k.Resource == gvr.Resource && k.Group == gvr.Group && k.Version == gvr.Version
	})
	if i < 0 {
		return Kind{}, false
	}
	return s.kinds[i], true
}

func (s *surface) documents() (core, other document) {
	s.render.Do(func() {
		s.core, s.other = s.document(true), s.document(false)
	})
	return s.core, s.other
}

func (s *surface) document(core bool) document {
	list := apidiscovery.APIGroupDiscoveryList{Items: []apidiscovery.APIGroupDiscovery{}}
	for _, g := range s.groups() {
		if (g.Name == "") != core {
			continue
		}
		item := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		for _, v := range g.Versions {
			version := apidiscovery.APIVersionDiscovery{Version: v.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
			if slices.Contains(s.broken, g.Name) {
				version.Freshness = apidiscovery.DiscoveryFreshnessStale
				item.Versions = append(item.Versions, version)
				continue
			}
			for _, r := range s.resources(schema.GroupVersion{Group: g.Name, Version: v.Version}) {
				scope := apidiscovery.ScopeCluster
				if r.Namespaced {
					scope = apidiscovery.ScopeNamespace
				}
				version.Resources = append(version.Resources, apidiscovery.APIResourceDiscovery{
					Resource: r.Name, SingularResource: r.SingularName, Scope: scope, Verbs: r.Verbs,
					ResponseKind: &metav1.GroupVersionKind{Group: g.Name, Version: v.Version, Kind: r.Kind},
				})
			}
			item.Versions = append(item.Versions, version)
		}
		list.Items = append(list.Items, item)
	}
	content, _ := json.Marshal(list) // of plain structs
	list.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}
	body, _ := json.Marshal(list)
	// The tag is kube-apiserver's: a hash of the content, the type left out.
	return document{body, fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(content)))}
}

// groups returns the groups in the order of their first kinds.
func (s *surface) groups() []metav1.APIGroup {
	var groups []metav1.APIGroup
	index := map[string]int{}
	for _, k := range s.kinds {
		i, ok := index[k.Group]
		if !ok {
			i = len(groups)
			index[k.Group] = i
			groups = append(groups, metav1.APIGroup{Name: k.Group})
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		if !slices.Contains(groups[i].Versions, v) {
			groups[i].Versions = append(groups[i].Versions, v)
			groups[i].PreferredVersion = groups[i].Versions[0]
		}
	}
	return groups
}

func (s *surface) resources(gv schema.GroupVersion) []metav1.APIResource {
	var resources []metav1.APIResource
	for _, k := range s.kinds {
		if k.GroupVersion() == gv {
			verbs := metav1.Verbs{"create", "delete", "get", "list", "update", "watch"}
			if strings.HasSuffix(k.Kind, "Review") {
				verbs = metav1.Verbs{"create"}
			}
			resources = append(resources, metav1.APIResource{
				Name: k.Resource, SingularName: strings.ToLower(k.Kind), Kind: k.Kind, Namespaced: !k.Cluster, Verbs: verbs,
			})
		}
	}
	return resources
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// serveDiscovery answers /api, /apis and the lists of resources. Not ok: the path is something else.
func (c *Cluster) serveDiscovery(w http.ResponseWriter, r *http.Request) (ok bool) {
	c.mu.Lock()
	s, legacy := c.surface, c.legacy
	c.mu.Unlock()
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(segments) == 1 && (segments[0] == "api" || segments[0] == "apis"):
		core := segments[0] == "api"
		switch {
		case !legacy && strings.Contains(r.Header.Get("Accept"), "g=apidiscovery.k8s.io;v=v2;"):
			doc, other := s.documents()
			if !core {
				doc = other
			}
			w.Header().Set("ETag", doc.tag)
			if r.Header.Get("If-None-Match") == doc.tag {
				w.WriteHeader(http.StatusNotModified)
				return true
			}
			w.Header().Set("Content-Type", aggregatedType)
			_, _ = w.Write(doc.body)
		case core:
			writeJSON(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		default:
			groups := slices.DeleteFunc(s.groups(), func(g metav1.APIGroup) bool { return g.Name == "" })
			writeJSON(w, http.StatusOK, metav1.APIGroupList{
				TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: groups,
			})
		}
		return true
	case len(segments) == 2 && segments[0] == "api":
		gv = schema.GroupVersion{Version: segments[1]}
	case len(segments) == 3 && segments[0] == "apis":
		gv = schema.GroupVersion{Group: segments[1], Version: segments[2]}
	default:
		return false
	}
	resources := s.resources(gv)
	switch {
	case slices.Contains(s.broken, gv.Group):
		writeStatus(w, http.StatusServiceUnavailable, 0)
	case len(resources) == 0:
		writeStatus(w, http.StatusNotFound, 0)
	default:
		writeJSON(w, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: resources,
		})
	}
	return true
}
