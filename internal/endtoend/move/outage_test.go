package move_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
)

// profiles are fake clusters that are listed as ClusterProfiles of a real hub, and engaged.
type profiles struct {
	*endtoend.Fleet
	hub         *controlplane.ControlPlane
	client      client.Client
	namespace   string
	fakes       []*fakeapi.Cluster
	engagements *engagements
}

func startProfiles(t *testing.T, hub *controlplane.ControlPlane, n int) *profiles {
	t.Helper()
	p := &profiles{hub: hub, client: endtoend.AdminClient(t, hub), engagements: &engagements{}}
	p.namespace = endtoend.Namespace(t, p.client)
	server := endtoend.Fakes(t)
	for i := range n {
		fake := server.Cluster(p.name(i))
		fake.AllowToken("token", "user")
		p.fakes = append(p.fakes, fake)
		createSecret(t, p.client, p.namespace, p.name(i), map[string]string{"Config": string(endtoend.Kubeconfig(t, fake.URL(), server.CAData(), "token"))},
			map[string]string{"x-k8s.io/cluster-inventory-consumer": "tributary", "x-k8s.io/cluster-profile": p.name(i)})
	}
	p.list(t)
	p.Fleet = endtoend.Start(t, aggregate.Options{}, endtoend.Before(func(f *endtoend.Fleet) {
		if err := f.Manager.Add(p.engagements); err != nil {
			t.Fatal(err)
		}
	}))
	backend, err := inventory.New(inventory.Options{Hub: hub.Config(), Namespaces: []string{p.namespace}, Consumer: "tributary"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add("hub", backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	p.engaged(t)
	return p
}

func (p *profiles) name(i int) string   { return fmt.Sprintf("p%02d", i) }
func (p *profiles) public(i int) string { return "hub/" + p.namespace + "/" + p.name(i) }

// list creates the ClusterProfiles.
func (p *profiles) list(t *testing.T) {
	t.Helper()
	for i := range p.fakes {
		endtoend.Profile(t, p.client, p.namespace, p.name(i))
	}
}

// engaged waits until all clusters are engaged and well.
func (p *profiles) engaged(t *testing.T) {
	t.Helper()
	for i := range p.fakes {
		endtoend.Eventually(t, p.public(i)+" is engaged", func() bool { return p.Engaged(p.public(i)) })
	}
}

// goOn makes sure that all clusters are engaged and reconciled now, and that none was ever disengaged.
func (p *profiles) goOn(t *testing.T) {
	t.Helper()
	for i, fake := range p.fakes {
		key := endtoend.PutConfigMap(t, fake, "on")
		endtoend.Eventually(t, p.public(i)+" is reconciled", func() bool { return p.Saw(p.public(i), key) > 0 })
	}
	if ended := p.engagements.cancelled(); len(ended) > 0 {
		t.Errorf("disengaged: %v", ended)
	}
	if n := p.engagements.count(); n != len(p.fakes) {
		t.Errorf("%d engagements of %d clusters", n, len(p.fakes))
	}
}

// A hub that is away and comes back disengages nothing, and is listened to again.
func TestHubAway(t *testing.T) {
	hub := planes.Get(t, controlplane.Options{Name: "away", CRDs: []controlplane.CRDs{controlplane.ClusterInventory}})
	p := startProfiles(t, hub, 3)
	if err := hub.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "the trouble is shown", func() bool { return p.Backends()[0].Health.Reason == backends.ReasonHubUnreachable })
	p.goOn(t)
	if err := hub.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "the hub is back", func() bool { return p.Backends()[0].Health == (backends.Health{}) })
	p.goOn(t)
	profile := &v1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name(0)}}
	if err := p.client.Patch(t.Context(), profile, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"back":"yes"}}}`))); err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "what happens in the hub is seen", func() bool { return p.Status(p.public(0)).Info.Labels["back"] == "yes" })
}

// The ClusterProfiles' CRD is deleted by accident, all profiles with it, and restored: nothing is disengaged.
func TestInventoryDeletedByAccident(t *testing.T) {
	hub := planes.Get(t, controlplane.Options{Name: "accident", CRDs: []controlplane.CRDs{controlplane.ClusterInventory}})
	p := startProfiles(t, hub, 12)
	if err := hub.DeleteCRDs(t.Context(), controlplane.ClusterInventory); err != nil {
		t.Fatal(err)
	}
	for i := range p.fakes {
		endtoend.Eventually(t, p.public(i)+" is held", func() bool { return p.Is(p.public(i), backends.Engaged, backends.ReasonVanished) })
	}
	if h := p.Backends()[0].Health; h.Reason != backends.ReasonVanished {
		t.Errorf("health: %+v", h)
	}
	p.goOn(t)
	if err := hub.InstallCRDs(t.Context(), controlplane.ClusterInventory); err != nil {
		t.Fatal(err)
	}
	p.list(t)
	p.engaged(t)
	p.goOn(t)
	if h := p.Backends()[0].Health; h != (backends.Health{}) {
		t.Errorf("health after all is restored: %+v", h)
	}
}
