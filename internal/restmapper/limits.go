package restmapper

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A surface costs about 3 KiB for every kind, and a member chooses what it says that it serves. These are far above what real
// servers serve, and bound what one member can make the hub spend.
const (
	maxGroups   = 5_000
	maxVersions = 64 // of one group
	maxKinds    = 50_000
)

// bounded reports whether the groups are no more than a server may have. A version counts as one kind at least.
func bounded(groups []group) bool {
	if len(groups) > maxGroups {
		return false
	}
	kinds := 0
	for _, g := range groups {
		if len(g.versions) > maxVersions {
			return false
		}
		for _, v := range g.versions {
			kinds += max(len(v.resources), 1)
		}
	}
	return kinds <= maxKinds
}

// validNames reports whether a group (empty: the core group) and a version of it have names that the API server lets them have
// (a DNS subdomain and a DNS label), so that they can stand in a path.
func validNames(group, version string) bool {
	return (group == "" || len(validation.IsDNS1123Subdomain(group)) == 0) && len(validation.IsDNS1035Label(version)) == 0
}

// validResource reports whether a resource's name can stand in a path. Names with a slash are subresources.
func validResource(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/%?#\\")
}
