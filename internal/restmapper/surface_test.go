package restmapper

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What mappings depend on makes another surface; what they do not depend on does not.
func TestHash(t *testing.T) {
	base := func() []group { return append(small(), crds(3)...) }
	want := hashOf(canonical(base()))
	for name, c := range map[string]struct {
		change func([]group) []group
		same   bool
	}{
		"order of groups":    {func(g []group) []group { slices.Reverse(g); return g }, true},
		"order of resources": {func(g []group) []group { slices.Reverse(g[0].versions[0].resources); return g }, true},
		"order of versions":  {func(g []group) []group { slices.Reverse(g[2].versions); return g }, false},
		"a repeated group":   {func(g []group) []group { return append(g, group{"apps", g[0].versions}) }, true},
		"a repeated version": {func(g []group) []group { g[2].versions = append(g[2].versions, g[2].versions[0]); return g }, true},
		"a repeated resource": {func(g []group) []group {
			r := &g[0].versions[0].resources
			*r = append(*r, resource{"pods", "x", "X", false})
			return g
		}, true},
		"an empty version": {func(g []group) []group { return append(g, group{"custom.metrics.k8s.io", []version{{name: "v1"}}}) }, true},
		"names of metrics": {func(g []group) []group {
			return append(g, group{"external.metrics.k8s.io", []version{{"v1beta1", []resource{{"queue_length", "", "ExternalMetricValueList", true}}}}})
		}, true},
		"a subresource": {func(g []group) []group {
			r := &g[1].versions[0].resources
			*r = append(*r, resource{"deployments/scale", "", "Scale", true})
			return g
		}, true},
		"a resource": {func(g []group) []group {
			r := &g[1].versions[0].resources
			*r = append(*r, resource{"daemonsets", "daemonset", "DaemonSet", true})
			return g
		}, false},
		"a scope":    {func(g []group) []group { g[0].versions[0].resources[0].namespaced = false; return g }, false},
		"a singular": {func(g []group) []group { g[0].versions[0].resources[0].singular = "cm"; return g }, false},
		"a kind":     {func(g []group) []group { g[0].versions[0].resources[0].kind = "Config"; return g }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hashOf(canonical(c.change(base()))); (got == want) != c.same {
				t.Errorf("same hash = %v, want %v", got == want, c.same)
			}
		})
	}
}

// Without a group named, core comes first, then Kubernetes' own groups, whatever order the server lists them in.
func TestGroupOrder(t *testing.T) {
	p := NewPool()
	deployments := []version{{"v1", []resource{{"deployments", "deployment", "Deployment", true}}}}
	groups := append([]group{{"aaa.example.com", deployments}}, small()...)
	slices.Reverse(groups)
	mapper := p.surface(groups, nil, nil).RESTMapper()
	for resource, want := range map[string]string{"deployments": "apps", "pods": ""} {
		kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: resource})
		if err != nil || kind.Group != want {
			t.Errorf("KindFor(%s) = %v, %v; want the group %q", resource, kind, err, want)
		}
	}
}

// A broken version returns to its place, so that a group that breaks and mends keeps its hash.
func TestCarry(t *testing.T) {
	p := NewPool()
	before := p.surface(small(), nil, nil)
	for _, broken := range [][]int{{0}, {1}, {0, 1}} {
		found := small()
		errs := map[schema.GroupVersion]error{}
		for _, i := range broken {
			errs[schema.GroupVersion{Group: "autoscaling", Version: small()[2].versions[i].name}] = errStale
			found[2].versions[i].resources = nil
		}
		if got := p.surface(found, errs, before); got.Hash() != before.Hash() {
			t.Errorf("broken versions %v: another surface", broken)
		}
		if got := p.surface(found, nil, before); got.Hash() == before.Hash() {
			t.Errorf("removed versions %v: the same surface", broken)
		}
	}
}
