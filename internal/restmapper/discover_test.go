package restmapper

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

func discover(t testing.TB, p *Pool, s *apiServer, previous *Surface) *Surface {
	t.Helper()
	surface, err := p.Discover(t.Context(), s.Client(), s.URL, previous)
	if err != nil {
		t.Fatal(err)
	}
	return surface
}

// An aggregating server is asked twice, an old one once more for each version, and both are understood alike.
func TestAggregatedAndLegacyServersShareASurface(t *testing.T) {
	p := NewPool()
	modern := newAPIServer(t, append(small(), crds(2000)...))
	old := newAPIServer(t, append(small(), crds(2000)...))
	old.legacy = true

	a, b := discover(t, p, modern, nil), discover(t, p, old, nil)
	if a.Hash() != b.Hash() || a.shared != b.shared {
		t.Fatalf("surfaces differ: %v (%d kinds) and %v (%d kinds)", a.Hash(), a.Kinds(), b.Hash(), b.Kinds())
	}
	if a.Kinds() != 2007 {
		t.Errorf("kinds = %d, want 2007", a.Kinds())
	}
	if diff := cmp.Diff(map[string]int{"200 /api": 1, "200 /apis": 1}, modern.count()); diff != "" {
		t.Errorf("requests to an aggregating server (-want +got):\n%s", diff)
	}
	if got, want := len(old.count()), 2+1+5+100-1; got != want {
		t.Errorf("an old server was asked for %d documents, want %d", got, want)
	}
	if p.Len() != 1 {
		t.Errorf("the pool has %d surfaces, want 1", p.Len())
	}
}

// What we map is what client-go maps.
func TestMapsLikeClientGo(t *testing.T) {
	s := newAPIServer(t, append(small(), crds(40)...))
	ours := discover(t, NewPool(), s, nil).RESTMapper()
	client, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: s.URL}, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	resources, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatal(err)
	}
	theirs := restmapper.NewDiscoveryRESTMapper(resources)

	if _, ok := ours.(groupedMapper); !ok {
		t.Errorf("the mapper is a %T: client-go builds it otherwise now", ours)
	}
	scopes := cmp.Comparer(func(a, b meta.RESTScope) bool { return a.Name() == b.Name() })
	for _, g := range s.groups {
		for _, v := range g.versions {
			for _, r := range v.resources {
				gk := schema.GroupKind{Group: g.name, Kind: r.kind}
				for _, versions := range [][]string{nil, {v.name}, {"v0", v.name}, {"v0"}, {""}} {
					a, aErr := ours.RESTMapping(gk, versions...)
					b, bErr := theirs.RESTMapping(gk, versions...)
					if diff := cmp.Diff(b, a, scopes); diff != "" || (aErr == nil) != (bErr == nil) || meta.IsNoMatchError(aErr) != meta.IsNoMatchError(bErr) {
						t.Errorf("RESTMapping(%v, %v): %v, client-go: %v\n%s", gk, versions, aErr, bErr, diff)
					}
				}
				for _, gvr := range []schema.GroupVersionResource{
					{Group: g.name, Version: v.name, Resource: r.name}, {Group: g.name, Resource: r.name}, {Resource: r.name}, {Resource: r.singular},
				} {
					a, aErr := ours.KindFor(gvr)
					b, bErr := theirs.KindFor(gvr)
					if a != b || (aErr == nil) != (bErr == nil) {
						t.Errorf("KindFor(%v) = %v, %v, client-go: %v, %v", gvr, a, aErr, b, bErr)
					}
				}
			}
		}
	}
}

// An aggregated API that is down harms nobody else, is reported, and what it served before stays known.
func TestBrokenGroup(t *testing.T) {
	metrics := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	for _, legacy := range []bool{false, true} {
		t.Run(map[bool]string{false: "aggregated", true: "legacy"}[legacy], func(t *testing.T) {
			p := NewPool()
			s := newAPIServer(t, small())
			s.legacy = legacy
			whole := discover(t, p, s, nil)
			s.set(func(s *apiServer) {
				s.stale["metrics.k8s.io/v1beta1"] = true
				s.fail["/apis/metrics.k8s.io/v1beta1"] = status(http.StatusServiceUnavailable)
			})

			firstSeen := discover(t, p, s, nil)
			if !firstSeen.Serves(schema.GroupVersionKind{Group: "apps", Kind: "Deployment"}) {
				t.Error("apps is not mapped because metrics.k8s.io is broken")
			}
			if firstSeen.Serves(metrics.WithKind("PodMetrics")) {
				t.Error("a kind that nobody has seen is mapped")
			}
			seenBefore := discover(t, p, s, whole)
			if seenBefore.shared != whole.shared {
				t.Errorf("the broken group changed the surface from %v to %v", whole.Hash(), seenBefore.Hash())
			}
			for _, surface := range []*Surface{firstSeen, seenBefore} {
				if got := slices.Collect(maps.Keys(surface.Broken)); !slices.Equal(got, []schema.GroupVersion{metrics}) {
					t.Errorf("broken = %v, want %v", got, metrics)
				}
			}

			s.set(func(s *apiServer) { clear(s.stale); clear(s.fail) })
			if mended := discover(t, p, s, seenBefore); mended.shared != whole.shared || len(mended.Broken) > 0 {
				t.Errorf("after mending: surface %v, broken %v; want %v, none", mended.Hash(), mended.Broken, whole.Hash())
			}
			s.set(func(s *apiServer) { s.groups = s.groups[:3] })
			if gone := discover(t, p, s, seenBefore); gone.Serves(metrics.WithKind("PodMetrics")) {
				t.Error("a group that is no longer listed is still mapped")
			}
		})
	}
}

// An unchanged document is not sent again.
func TestEntityTags(t *testing.T) {
	p := NewPool()
	s := newAPIServer(t, small())
	before := discover(t, p, s, nil)
	s.count()
	if same := discover(t, p, s, before); same != before {
		t.Error("an unchanged surface is another one")
	}
	if diff := cmp.Diff(map[string]int{"304 /api": 1, "304 /apis": 1}, s.count()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	s.set(func(s *apiServer) { s.groups = append(s.groups, crds(1)...) })
	after := discover(t, p, s, before)
	for _, kind := range []schema.GroupVersionKind{{Kind: "Pod"}, {Group: "g0.example.com", Version: "v1", Kind: "Widget0"}} {
		if !after.Serves(kind) {
			t.Errorf("%v is not mapped", kind)
		}
	}
	if diff := cmp.Diff(map[string]int{"304 /api": 1, "200 /apis": 1}, s.count()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestErrors(t *testing.T) {
	text := func(contentType, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write([]byte(body))
		})
	}
	isInvalid := func(err error) bool { return errors.Is(err, ErrInvalidResponse) }
	aggregatedType := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for name, c := range map[string]struct {
		answer http.Handler
		want   func(error) bool
	}{
		"401":             {status(http.StatusUnauthorized), apierrors.IsUnauthorized},
		"403":             {status(http.StatusForbidden), apierrors.IsForbidden},
		"429":             {status(http.StatusTooManyRequests), apierrors.IsTooManyRequests},
		"500":             {status(http.StatusInternalServerError), apierrors.IsInternalError},
		"a web page":      {text("text/html", "<html>sign in</html>"), isInvalid},
		"an empty object": {text("application/json", "{}"), isInvalid},
		"nothing":         {text("application/json", ""), isInvalid},
		"half a document": {text(aggregatedType, `{"items":[`), isInvalid},
		"no groups":       {text(aggregatedType, `{"items":[]}`), isInvalid},
		"304 uncalled": {status(http.StatusNotModified), func(err error) bool {
			var s apierrors.APIStatus
			return errors.As(err, &s) && s.Status().Code == http.StatusNotModified
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, small())
			s.fail["/api"], s.fail["/apis"] = c.answer, c.answer
			if _, err := NewPool().Discover(t.Context(), s.Client(), s.URL, nil); !c.want(err) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// A server that never answers costs what the caller's context allows, whichever request hangs.
func TestHangingServer(t *testing.T) {
	for _, path := range []string{"/api", "/apis", "/apis/apps/v1"} {
		t.Run(path, func(t *testing.T) {
			s := newAPIServer(t, small())
			s.legacy = true
			s.fail[path] = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := NewPool().Discover(ctx, s.Client(), s.URL, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error = %v, want a deadline", err)
			}
		})
	}
}

// Without a deadline of the caller's, there is ours.
func TestDiscoveryEndsWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		start := time.Now()
		_, err := NewPool().Discover(t.Context(), client, "https://cluster.invalid", nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != maxDuration {
			t.Errorf("error after %v: %v", time.Since(start), err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}
