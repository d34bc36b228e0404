package fleet_test

import (
	"bytes"
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	kubeconfigs "github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// A rotation to a connection that policy refuses ends the use of the old one: nothing of it stays open.
func TestPolicyEndsTheUseOfTheOldCredential(t *testing.T) {
	hub, member := planes.Get(t, controlplane.Options{Name: "one"}), planes.Get(t, controlplane.Options{Name: "good-0"})
	proxy, err := faultproxy.Start(member.URL()[len("https://"):], faultproxy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	token := endtoend.Issue(t, endtoend.NewUser(t, member, controlplane.Everything()...))
	good := token.KubeconfigFor("https://" + proxy.Addr())

	c, err := client.New(hub.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: endtoend.Unique("refused"), Labels: map[string]string{"test": "policy"}},
		Data:       map[string][]byte{"kubeconfig": good},
	}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), secret) })
	backend, err := kubeconfigs.New(kubeconfigs.Options{Hub: hub.Config(), Namespaces: []string{"default"}, LabelSelector: "test=policy"})
	if err != nil {
		t.Fatal(err)
	}
	f := endtoend.Start(t, aggregate.Options{})
	if err := f.Add("x", backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	public := "x/default/" + secret.Name
	endtoend.Eventually(t, "engaged", func() bool { return f.Is(public, backends.Engaged, backends.ReasonReady) })

	secret.Data["kubeconfig"] = bytes.Replace(good, []byte("https://"), []byte("http://"), 1)
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "refused", func() bool { return f.Is(public, backends.Rejected, backends.ReasonPolicyViolation) })
	endtoend.Eventually(t, "no connection is left", func() bool { return proxy.Stats().Active == 0 })

	secret.Data["kubeconfig"] = good
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "engaged again", func() bool { return f.Is(public, backends.Engaged, backends.ReasonReady) })
}
