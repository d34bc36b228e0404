package restmapper

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A member that claims to serve more than any server does is refused, in either form of discovery.
func TestMoreThanAServerServes(t *testing.T) {
	one := []resource{{"widgets", "widget", "Widget", true}}
	groups := make([]group, maxGroups+1)
	for i := range groups {
		groups[i] = group{fmt.Sprintf("g%d.example.com", i), []version{{"v1", one}}}
	}
	versions := group{name: "example.com"}
	for i := range maxVersions + 1 {
		versions.versions = append(versions.versions, version{fmt.Sprintf("v%d", i), one})
	}
	for name, c := range map[string]struct {
		groups []group
		legacy bool
	}{
		"groups":           {groups, false},
		"groups, legacy":   {groups, true},
		"versions":         {[]group{versions}, false},
		"versions, legacy": {[]group{versions}, true},
		"kinds":            {crds(maxKinds + 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPool()
			s := newAPIServer(t, append(small(), c.groups...))
			s.legacy = c.legacy
			if _, err := p.Discover(t.Context(), s.Client(), s.URL, nil); !errors.Is(err, ErrInvalidResponse) {
				t.Errorf("got %v", err)
			}
			if n := len(s.count()); n > 2+len(small()) {
				t.Errorf("%d documents were asked for", n)
			}
			if p.Len() != 0 {
				t.Error("a surface was made of it")
			}
		})
	}
}

// A list of tiny values takes many times its length when it is decoded, so it is not decoded.
func TestManyTinyValues(t *testing.T) {
	s := newAPIServer(t, small())
	s.fail["/apis"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, _ = fmt.Fprintf(w, `{"items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[0%s]}]}]}`, strings.Repeat(",0", maxValues))
	})
	_, err := NewPool().Discover(t.Context(), s.Client(), s.URL, nil)
	if !errors.Is(err, ErrInvalidResponse) || !strings.Contains(err.Error(), "values") {
		t.Errorf("got %v", err)
	}
}

// What is taken over from broken groups does not add up over many discoveries.
func TestCarryIsBounded(t *testing.T) {
	p := NewPool()
	before := p.surface(crds(maxKinds), nil, nil)
	broken := map[schema.GroupVersion]error{}
	for _, g := range before.shared.groups {
		broken[schema.GroupVersion{Group: g.name, Version: "v1"}] = errStale
	}
	if got := p.surface(small(), broken, before).Kinds(); got > maxKinds {
		t.Errorf("%d kinds", got)
	}
}

// Names that a server cannot have reach no path, no error and no mapping.
func TestNamesThatAServerCannotHave(t *testing.T) {
	const marker = "marker"
	resources := []resource{{"widgets", "widget", "Widget", true}, {"..", "", "Up", true}, {"a?x=" + marker, "", "Query", true}}
	for _, legacy := range []bool{false, true} {
		s := newAPIServer(t, append(small(),
			group{"../../" + marker, []version{{"v1", resources}}},
			group{"example.com", []version{{"v1/../../" + marker, resources}, {"v1", resources}}},
		))
		s.legacy = legacy
		surface := discover(t, NewPool(), s, nil)
		if got, want := surface.Kinds(), 7+1; got != want {
			t.Errorf("legacy %v: %d kinds, want %d", legacy, got, want)
		}
		if len(surface.Broken) != 0 {
			t.Errorf("legacy %v: broken: %v", legacy, surface.Broken)
		}
		for request := range s.count() {
			if strings.Contains(request, marker) {
				t.Errorf("legacy %v: asked for %s", legacy, request)
			}
		}
	}
}
