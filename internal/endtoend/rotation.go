package endtoend

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// Rotation is the exchange of a cluster's token, over and over.
type Rotation struct {
	// Cluster is the public name.
	Cluster string
	// Admin creates objects in the cluster, and Proxy is what it is reached through.
	Admin client.Client
	Proxy *faultproxy.TLSProxy
	// User has the tokens, of which Token is the one to begin with, and Write puts one where the backend finds it.
	User  *controlplane.User
	Token *controlplane.Token
	Write func(token string)
	// Times is how often.
	Times int
}

// Rotate has each new token come into force and the one before it revoked, and makes sure that nobody feels it: no LIST, no
// refused request, no new engagement, and the controller of the three kinds, which is the fleet's only one, misses nothing.
func (f *Fleet) Rotate(t testing.TB, kinds *ThreeKinds, r Rotation) {
	t.Helper()
	Eventually(t, "engaged", func() bool { return f.Engaged(r.Cluster) })
	first := kinds.Create(t, r.Admin)
	Eventually(t, "three kinds are watched", func() bool { return kinds.SawAll(first) })
	cl, err := f.Get(t.Context(), Name(r.Cluster))
	if err != nil {
		t.Fatal(err)
	}
	r.Proxy.Counter.Reset()

	begin := time.Now()
	for range r.Times {
		next := Issue(t, r.User)
		r.Write(next.Token())
		Eventually(t, "the new token is in force", func() bool {
			config, err := f.RESTConfigFor(t.Context(), Name(r.Cluster))
			return err == nil && config.BearerToken == next.Token()
		})
		if err := r.Token.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Token = next
		objects := kinds.Create(t, r.Admin)
		Eventually(t, "the controller sees three new objects", func() bool { return kinds.SawAll(objects) })
	}
	t.Logf("%d rotations in %v: %d requests at the member, %d of them watches", r.Times, time.Since(begin).Round(time.Millisecond),
		r.Proxy.Counter.Count(), r.Proxy.Counter.Count(faultproxy.WithVerb(faultproxy.Watch)))
	if n := r.Proxy.Counter.Relists(); n != 0 {
		t.Errorf("%d relists, want none", n)
	}
	if n := r.Proxy.Counter.Count(faultproxy.WithStatus(401)); n != 0 {
		t.Errorf("%d requests were refused with 401, want none", n)
	}
	if now, err := f.Get(t.Context(), Name(r.Cluster)); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}
	if errs := kinds.Errors(); len(errs) > 0 {
		t.Errorf("the controller saw %d errors, the first: %v", len(errs), errs[0])
	}
}
