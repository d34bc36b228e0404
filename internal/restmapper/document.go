package restmapper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errStale is why a version of an aggregated document is in Surface.Broken.
var errStale = errors.New("the server could not reach the API's backend lately")

// core reads /api. Servers that serve no core group, as aggregated API servers do, answer 404.
func (s server) core(ctx context.Context, tag string) (document, error) {
	const path = "/api"
	a, err := s.get(ctx, path, accept, tag)
	switch {
	case apierrors.IsNotFound(err):
		return document{}, nil
	case err != nil:
		return document{}, err
	case a.unchanged:
		return document{tag: a.tag, unchanged: true}, nil
	case isAggregated(a.contentType):
		return aggregated(path, a, func(group string) bool { return group == "" })
	}
	var legacy metav1.APIVersions
	if json.Unmarshal(a.body, &legacy) != nil {
		return document{}, fmt.Errorf("discover %s: %w", path, ErrInvalidResponse)
	}
	return s.each(ctx, path, []listed{{versions: legacy.Versions}})
}

// groups reads /apis.
func (s server) groups(ctx context.Context, tag string) (document, error) {
	const path = "/apis"
	a, err := s.get(ctx, path, accept, tag)
	switch {
	case err != nil:
		return document{}, err
	case a.unchanged:
		return document{tag: a.tag, unchanged: true}, nil
	case isAggregated(a.contentType):
		return aggregated(path, a, func(group string) bool { return group != "" })
	}
	var legacy metav1.APIGroupList
	if json.Unmarshal(a.body, &legacy) != nil {
		return document{}, fmt.Errorf("discover %s: %w", path, ErrInvalidResponse)
	}
	var groups []listed
	for _, g := range legacy.Groups {
		if g.Name == "" {
			continue
		}
		if len(g.Versions) > maxVersions { // before they are compared with one another
			return document{}, fmt.Errorf("discover %s: more than %d versions of a group: %w", path, maxVersions, ErrInvalidResponse)
		}
		l := listed{group: g.Name}
		if g.PreferredVersion.Version != "" {
			l.versions = append(l.versions, g.PreferredVersion.Version)
		}
		for _, v := range g.Versions {
			if !slices.Contains(l.versions, v.Version) {
				l.versions = append(l.versions, v.Version)
			}
		}
		groups = append(groups, l)
	}
	return s.each(ctx, path, groups)
}

func isAggregated(contentType string) bool {
	base, params, err := mime.ParseMediaType(contentType)
	return err == nil && base == "application/json" && params["g"] == "apidiscovery.k8s.io" &&
		params["as"] == "APIGroupDiscoveryList" && (params["v"] == "v2" || params["v"] == "v2beta1")
}

// aggregatedVersion is a version in an APIGroupDiscoveryList.
type aggregatedVersion struct {
	Version   string `json:"version"`
	Freshness string `json:"freshness"`
	Resources []struct {
		Resource     string `json:"resource"`
		Singular     string `json:"singularResource"`
		Scope        string `json:"scope"`
		ResponseKind *struct {
			Kind string `json:"kind"`
		} `json:"responseKind"`
	} `json:"resources"`
}

// aggregated reads an APIGroupDiscoveryList of those groups that are wanted. Versions v2 and v2beta1 are alike in what is read here.
func aggregated(path string, a answer, wanted func(group string) bool) (document, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Versions []aggregatedVersion `json:"versions"`
		} `json:"items"`
	}
	if json.Unmarshal(a.body, &list) != nil {
		return document{}, fmt.Errorf("discover %s: %w", path, ErrInvalidResponse)
	}
	d := document{broken: map[schema.GroupVersion]error{}, tag: a.tag, proven: proves(a.tag, a.body)}
	for _, item := range list.Items {
		if !wanted(item.Metadata.Name) {
			continue
		}
		item.Versions = slices.DeleteFunc(item.Versions, func(v aggregatedVersion) bool { return !validNames(item.Metadata.Name, v.Version) })
		g := group{name: item.Metadata.Name}
		for _, v := range item.Versions {
			if v.Freshness == "Stale" {
				d.broken[schema.GroupVersion{Group: g.name, Version: v.Version}] = errStale
			}
			resources := make([]resource, 0, len(v.Resources))
			for _, r := range v.Resources {
				// A resource without a kind is only there for its subresources.
				if r.ResponseKind != nil {
					resources = append(resources, resource{r.Resource, r.Singular, r.ResponseKind.Kind, r.Scope == "Namespaced"})
				}
			}
			g.versions = append(g.versions, version{v.Version, resources})
		}
		d.found = append(d.found, g)
	}
	return d, nil
}

// listed is a group of a legacy document, its preferred version first.
type listed struct {
	group    string
	versions []string
}

// each asks for the resources of every version, a few at a time. A version that cannot be read is broken; one that
// is gone by now is left out; and if none can be read, that is the error.
//
// Nothing is asked for whose name could not be a group's or a version's: names become parts of paths and of errors.
func (s server) each(ctx context.Context, path string, groups []listed) (document, error) {
	all := make([]group, 0, len(groups))
	for _, l := range groups {
		all = append(all, group{name: l.group, versions: make([]version, len(l.versions))})
	}
	if !bounded(all) {
		return document{}, fmt.Errorf("discover %s: more groups or versions than any server has: %w", path, ErrInvalidResponse)
	}
	d := document{broken: map[schema.GroupVersion]error{}}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards d.broken and failed
	var failed error
	slots := make(chan struct{}, parallel)
	for _, l := range groups {
		l.versions = slices.DeleteFunc(l.versions, func(v string) bool { return !validNames(l.group, v) })
		if len(l.versions) == 0 {
			continue
		}
		g := group{name: l.group, versions: make([]version, len(l.versions))}
		for i, name := range l.versions {
			g.versions[i].name = name
			gv := schema.GroupVersion{Group: l.group, Version: name}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				resources, err := s.resources(ctx, gv)
				if err == nil {
					g.versions[i].resources = resources
					return
				}
				mu.Lock()
				defer mu.Unlock()
				d.broken[gv] = err
				failed = err
			})
		}
		d.found = append(d.found, g)
	}
	wg.Wait()
	if s.read.Load() > maxTotal {
		return document{}, fmt.Errorf("discover %s: more than %d bytes altogether: %w", path, maxTotal, ErrInvalidResponse)
	}
	if err := ctx.Err(); err != nil && failed != nil {
		return document{}, failed
	}
	if failed != nil && !slices.ContainsFunc(d.found, func(g group) bool {
		return slices.ContainsFunc(g.versions, func(v version) bool { return v.resources != nil })
	}) {
		return document{}, failed
	}
	return d, nil
}

// resources reads one group version. Not found is no error and no resource: it was removed since it was listed.
func (s server) resources(ctx context.Context, gv schema.GroupVersion) ([]resource, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	a, err := s.get(ctx, path, "application/json", "")
	if apierrors.IsNotFound(err) {
		return []resource{}, nil
	}
	if err != nil {
		return nil, err
	}
	var list struct {
		Resources []struct {
			Name         string `json:"name"`
			SingularName string `json:"singularName"`
			Kind         string `json:"kind"`
			Namespaced   bool   `json:"namespaced"`
		} `json:"resources"`
	}
	if json.Unmarshal(a.body, &list) != nil {
		return nil, fmt.Errorf("discover %s: %w", path, ErrInvalidResponse)
	}
	resources := make([]resource, 0, len(list.Resources))
	for _, r := range list.Resources {
		resources = append(resources, resource{r.Name, r.SingularName, r.Kind, r.Namespaced})
	}
	return resources, nil
}
