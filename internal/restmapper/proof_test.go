package restmapper

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// A real API server's surface may be shared, and one that carries somebody else's tag may not.
func TestSurfacesAreSharedByProofOnly(t *testing.T) {
	plane, err := controlplane.Start(t.Context(), controlplane.Options{Name: "proof"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := rest.HTTPClientFor(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	pool := NewPool()
	honest, err := pool.Discover(t.Context(), client, plane.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !honest.Shareable() {
		t.Error("the surface of a kube-apiserver is not proved by its tags")
	}
	again, err := pool.Discover(t.Context(), client, plane.URL(), honest)
	if err != nil || again != honest {
		t.Errorf("asked whether anything has changed: another surface (%v)", err)
	}

	// The same answers with the tags of another cluster, as a hostile one would send them.
	forged := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := client.Transport.RoundTrip(r)
		if err == nil {
			resp.Header.Set("ETag", `"`+forgedTag+`"`)
		}
		return resp, err
	})}
	surface, err := pool.Discover(t.Context(), forged, plane.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if surface.Shareable() {
		t.Error("a surface with a tag that is not its content's may be shared")
	}
}

const forgedTag = "0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF" +
	"0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF"
