package inventory_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	clusterprofiles "github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// Managers write heartbeats and labels all the time. 1,000 of them reach reconcilers as Info and cost an engaged cluster
// nothing: no connection, no list, no new engagement.
func TestHeartbeatsAndLabelsLeaveEngagementsAlone(t *testing.T) {
	const updates = 1000
	hub := planes.Get(t, controlplane.Options{Name: "inventory", CRDs: []controlplane.CRDs{controlplane.ClusterInventory}})
	c := endtoend.AdminClient(t, hub)
	namespace := endtoend.Namespace(t, c)
	server := endtoend.Fakes(t)
	fake := server.Cluster("prod")
	fake.AllowToken("token", "user")
	key := endtoend.PutConfigMap(t, fake, "mine")
	profile := endtoend.Profile(t, c, namespace, "prod")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prod", Labels: map[string]string{
			"x-k8s.io/cluster-inventory-consumer": "tributary", "x-k8s.io/cluster-profile": "prod"}},
		Data: map[string][]byte{"Config": endtoend.Kubeconfig(t, fake.URL(), server.CAData(), "token")},
	}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	backend, err := clusterprofiles.New(clusterprofiles.Options{
		Hub: hub.Config(), Namespaces: []string{namespace}, Consumer: "tributary"})
	if err != nil {
		t.Fatal(err)
	}
	f := endtoend.Start(t, aggregate.Options{})
	if err := f.Add("hub", backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	public := "hub/" + namespace + "/prod"
	endtoend.Eventually(t, "reconciled", func() bool { return f.Saw(public, key) > 0 })
	endtoend.Eventually(t, "engaged", func() bool { return f.Is(public, backends.Engaged, backends.ReasonReady) })
	cl, err := f.Get(t.Context(), endtoend.Name(public))
	if err != nil {
		t.Fatal(err)
	}
	since, reconciled := f.Status(public).Since, f.Saw(public, key)
	fake.Counter.Reset()

	for i := range updates {
		if i%2 == 0 {
			patch := fmt.Sprintf(`{"metadata":{"labels":{"heartbeat":"%d"}}}`, i)
			err = c.Patch(t.Context(), profile, client.RawPatch("application/merge-patch+json", []byte(patch)))
		} else {
			profile.Status.Conditions[0].LastTransitionTime.Time = profile.Status.Conditions[0].LastTransitionTime.AddDate(0, 0, 1)
			err = c.Status().Update(t.Context(), profile)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	endtoend.Eventually(t, "the last label is known", func() bool {
		return f.Status(public).Info.Labels["heartbeat"] == fmt.Sprint(updates-2)
	})
	if now, err := f.Get(t.Context(), endtoend.Name(public)); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}
	if now := f.Status(public); now.State != backends.Engaged || !now.Since.Equal(since) {
		t.Errorf("the state changed: %+v", now)
	}
	if n := f.Saw(public, key); n != reconciled {
		t.Errorf("%d more reconciles", n-reconciled)
	}
	if n := fake.Counter.Relists(); n > 0 {
		t.Errorf("%d lists", n)
	}
	connects := fake.Counter.Count(func(r faultproxy.Request) bool { // what a new connection asks, and no probe
		return r.Path == "/api" || r.Path == "/apis" || r.Path == "/version" || strings.HasSuffix(r.Path, "/selfsubjectreviews")
	})
	if connects > 0 {
		t.Errorf("%d requests of new connections: %v", connects, fake.Counter.Requests())
	}
}
