package restmapper

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
)

// table is the part of a surface that clusters share: one for each hash that is in use.
type table struct {
	hash   Hash
	groups []group // canonical
	kinds  int

	// build fills mapper, once, by whoever needs it first; see Pool.intern.
	build  sync.Once
	mapper meta.RESTMapper
}

// group, version and resource are the part of a discovery document that mappings depend on.
type group struct {
	name     string
	versions []version // the preferred one first
}

type version struct {
	name      string
	resources []resource
}

type resource struct {
	name, singular, kind string
	namespaced           bool
}

// newMapper makes client-go's mapper for canonical groups, with a short cut to each group.
func newMapper(groups []group) meta.RESTMapper {
	discovered := make([]*restmapper.APIGroupResources, 0, len(groups))
	for _, g := range groups {
		r := &restmapper.APIGroupResources{
			Group:              metav1.APIGroup{Name: g.name},
			VersionedResources: make(map[string][]metav1.APIResource, len(g.versions)),
		}
		for _, v := range g.versions {
			r.Group.Versions = append(r.Group.Versions, metav1.GroupVersionForDiscovery{
				GroupVersion: schema.GroupVersion{Group: g.name, Version: v.name}.String(),
				Version:      v.name,
			})
			resources := make([]metav1.APIResource, len(v.resources))
			for i, res := range v.resources {
				resources[i] = metav1.APIResource{
					Name: res.name, SingularName: res.singular, Kind: res.kind, Namespaced: res.namespaced,
				}
			}
			r.VersionedResources[v.name] = resources
		}
		r.Group.PreferredVersion = r.Group.Versions[0]
		discovered = append(discovered, r)
	}
	whole := restmapper.NewDiscoveryRESTMapper(discovered)
	byGroup, ok := split(whole, groups)
	if !ok {
		return whole // it only takes longer
	}
	return groupedMapper{whole, byGroup}
}

// groupedMapper looks kinds up in their own group alone. client-go's asks the mapper of every version of every group, with
// an error from each that does not know: tens of microseconds, which controller-runtime pays for each read from a
// cache of several namespaces, and each write.
type groupedMapper struct {
	meta.RESTMapper
	groups map[string]meta.RESTMapper
}

// RESTMapping implements meta.RESTMapper.
func (m groupedMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if g, ok := m.groups[kind.Group]; ok {
		return g.RESTMapping(kind, versions...)
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

// RESTMappings implements meta.RESTMapper.
func (m groupedMapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	if g, ok := m.groups[kind.Group]; ok {
		return g.RESTMappings(kind, versions...)
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

// split makes a mapper of each group from the parts of the whole, which consists of one for each version, in order. Not ok:
// it does not, in this version of client-go.
func split(whole meta.RESTMapper, groups []group) (map[string]meta.RESTMapper, bool) {
	priority, ok := whole.(meta.PriorityRESTMapper)
	if !ok {
		return nil, false
	}
	parts, ok := priority.Delegate.(meta.MultiRESTMapper)
	if !ok {
		return nil, false
	}
	result := make(map[string]meta.RESTMapper, len(groups))
	for _, g := range groups {
		if len(parts) < len(g.versions) {
			return nil, false
		}
		m := meta.PriorityRESTMapper{Delegate: parts[:len(g.versions):len(g.versions)]}
		for _, v := range g.versions {
			gv := schema.GroupVersion{Group: g.name, Version: v.name}
			m.KindPriority = append(m.KindPriority, gv.WithKind(meta.AnyKind))
		}
		result[g.name] = m
		parts = parts[len(g.versions):]
	}
	return result, len(parts) == 0
}
