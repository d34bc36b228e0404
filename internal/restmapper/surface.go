package restmapper

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Hash identifies an API surface: equal hashes map alike.
//
// It covers what a mapping depends on: the groups, their versions in order of preference, and of every resource
// its name, singular name, kind and scope. The server's order of groups and of resources, verbs, short names, categories,
// subresources, and whether a group is broken at the moment do not count.
type Hash [sha256.Size]byte

// String returns the first eight hexadecimal digits: enough to tell two apart in a log.
func (h Hash) String() string { return hex.EncodeToString(h[:4]) }

// Surface is what a cluster was found to serve. It is immutable and may be used concurrently.
type Surface struct {
	// Broken are the group versions that the server lists and cannot describe now, mostly because of an aggregated API
	// whose backend is down, and why. Kinds of theirs that are known from before, or that the server still
	// remembers, are mapped nevertheless. Read only.
	Broken map[schema.GroupVersion]error

	shared *table

	// The entity tags of the answers that the surface was made from; empty if the server sent none.
	coreTag, groupsTag string
	// Whether these are hashes of the answers' content.
	coreProven, groupsProven bool
}

// Hash identifies the surface's content.
func (s *Surface) Hash() Hash { return s.shared.hash }

// Kinds is how many kinds are mapped, counted once per version.
func (s *Surface) Kinds() int { return s.shared.kinds }

// Shareable reports whether the surface may be given to [Pool.Discover] as another cluster's previous one: it is complete,
// and its entity tags are hashes of its content, so that no cluster can pass its own surface off as another's.
func (s *Surface) Shareable() bool { return len(s.Broken) == 0 && s.coreProven && s.groupsProven }

// RESTMapper is the immutable mapper that all clusters with this surface share. It never does I/O.
func (s *Surface) RESTMapper() meta.RESTMapper { return s.shared.mapper }

// Serves reports whether the kind is served in that version, or, with an empty version, in any.
func (s *Surface) Serves(gvk schema.GroupVersionKind) bool {
	var versions []string
	if gvk.Version != "" {
		versions = []string{gvk.Version}
	}
	_, err := s.shared.mapper.RESTMapping(gvk.GroupKind(), versions...)
	return err == nil
}

// externalMetrics is left out of every surface: its "resources" are names of metrics, which come and go and
// differ in every cluster, all of one kind that can be neither listed nor watched. With it, hardly two clusters
// would share a surface.
const externalMetrics = "external.metrics.k8s.io"

// canonical orders groups and resources, and drops what maps to nothing: repeated names, subresources, empty versions
// and groups. Groups are ordered core, Kubernetes' own, others, each by name: the order decides between groups
// when somebody asks for a resource without naming its group, and "deployments" should then be those of apps.
func canonical(groups []group) []group {
	result := make([]group, 0, len(groups))
	for _, g := range groups {
		if g.name == externalMetrics {
			continue
		}
		versions := make([]version, 0, len(g.versions))
		for _, v := range g.versions {
			if v.name == "" || slices.ContainsFunc(versions, func(o version) bool { return o.name == v.name }) {
				continue
			}
			v.resources = canonicalResources(v.resources)
			if len(v.resources) > 0 {
				versions = append(versions, v)
			}
		}
		if len(versions) > 0 {
			result = append(result, group{g.name, slices.Clip(versions)})
		}
	}
	slices.SortStableFunc(result, func(a, b group) int {
		return cmp.Or(cmp.Compare(rank(a.name), rank(b.name)), cmp.Compare(a.name, b.name))
	})
	return slices.CompactFunc(result, func(a, b group) bool { return a.name == b.name })
}

func canonicalResources(resources []resource) []resource {
	resources = slices.DeleteFunc(slices.Clone(resources), func(r resource) bool {
		return r.kind == "" || !validResource(r.name)
	})
	slices.SortStableFunc(resources, func(a, b resource) int { return cmp.Compare(a.name, b.name) })
	return slices.Clip(slices.CompactFunc(resources, func(a, b resource) bool { return a.name == b.name }))
}

func rank(group string) int {
	switch {
	case group == "":
		return 0
	case !strings.Contains(group, "."), strings.HasSuffix(group, ".k8s.io"):
		return 1
	default:
		return 2
	}
}

// hashOf hashes canonical groups, every value behind its length so that no two contents collide.
func hashOf(groups []group) (result Hash) {
	d := digest{sha256.New()}
	d.len(len(groups))
	for _, g := range groups {
		d.string(g.name)
		d.len(len(g.versions))
		for _, v := range g.versions {
			d.string(v.name)
			d.len(len(v.resources))
			for _, r := range v.resources {
				d.string(r.name)
				d.string(r.singular)
				d.string(r.kind)
				if r.namespaced {
					d.len(1)
				} else {
					d.len(0)
				}
			}
		}
	}
	d.h.Sum(result[:0])
	return result
}

type digest struct{ h hash.Hash }

func (d digest) len(n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.h.Write(b[:])
}

func (d digest) string(s string) {
	d.len(len(s))
	d.h.Write([]byte(s))
}

// carry returns found with the versions added that are broken now and were known before: an aggregated API that
// is down for a while has not been uninstalled.
func carry(found, before []group, broken map[schema.GroupVersion]error) []group {
	result := slices.Clone(found)
	at := make(map[string]int, len(found))
	for i, g := range found {
		at[g.name] = i
	}
	for _, old := range before {
		i, ok := at[old.name]
		if !ok {
			i = -1
		}
		var versions []version
		if i >= 0 {
			versions = slices.Clone(result[i].versions)
		}
		changed := false
		for k, v := range old.versions {
			_, isBroken := broken[schema.GroupVersion{Group: old.name, Version: v.name}]
			if !isBroken || indexOf(versions, v.name) >= 0 {
				continue
			}
			// Behind the version that it followed before, so that a group that breaks and mends keeps its hash.
			place := 0
			if k > 0 {
				place = indexOf(versions, old.versions[k-1].name) + 1
			}
			versions = slices.Insert(versions, place, v)
			changed = true
		}
		switch {
		case !changed:
		case i >= 0:
			result[i] = group{old.name, versions}
		default:
			result = append(result, group{old.name, versions})
		}
	}
	return result
}

func indexOf(versions []version, name string) int {
	return slices.IndexFunc(versions, func(v version) bool { return v.name == name })
}
