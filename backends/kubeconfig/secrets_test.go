package kubeconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
)

func access() backendtest.Access {
	return backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
}

// Taking the label off, or the key out, takes the cluster out of the inventory.
func TestLabelAndKeyDecide(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	data := map[string][]byte{"kubeconfig": access().Kubeconfig(), "other": []byte("x")}
	secret := hubtest.Secret(namespace, "prod", nil, data)
	hub.Put(t, secret)
	r.WaitSynced(t)
	if f := r.Fleet(); len(f.Members) > 0 {
		t.Errorf("a Secret without the label is a member; the fleet: %s", f)
	}
	hub.Label(t, secret, mcrLabels())
	r.WaitEngaged(t, namespace+"/prod")
	hub.Label(t, secret, map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": ""})
	r.WaitDisengaged(t, namespace+"/prod")

	hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), data))
	r.WaitEngaged(t, namespace+"/prod")
	hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), map[string][]byte{"other": []byte("x")}))
	if hold := r.WaitHeld(t, namespace+"/prod", backends.ReasonKeyNotFound); hold.Keep || hold.Rejected {
		t.Errorf("held as %+v, want waited for, and not kept", hold)
	}
	hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), map[string][]byte{"kubeconfig": {}}))
	hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), data))
	r.WaitEngaged(t, namespace+"/prod")
}

// Damaged data keeps a running engagement, and what policy refuses ends it.
func TestDamageAndPolicy(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	put := func(data []byte) {
		hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), map[string][]byte{"kubeconfig": data}))
	}
	put(access().Kubeconfig())
	r.WaitEngaged(t, namespace+"/prod")
	put(access().Kubeconfig()[:40])
	if hold := r.WaitHeld(t, namespace+"/prod", backends.ReasonInvalidKubeconfig); !hold.Keep || !hold.Rejected {
		t.Errorf("damaged: held as %+v, want rejected and kept", hold)
	}
	plain := access()
	plain.Server = "http://prod.example.com"
	put(plain.Kubeconfig())
	if hold := r.WaitHeld(t, namespace+"/prod", backends.ReasonPolicyViolation); hold.Keep || !hold.Rejected {
		t.Errorf("refused: held as %+v, want rejected and not kept", hold)
	}
	open := backendtest.Start(t, newBackend(t, kubeconfig.Options{
		Hub: hub.Config(), Namespaces: []string{namespace}, Policy: connection.Policy{AllowPlainHTTP: true}}))
	open.WaitEngaged(t, namespace+"/prod")
}

// Selector and key are the user's, and the Secret's labels are Info. Its annotations are not: some tools keep whole
// copies of an object in them, data included.
func TestOptionsAndInfo(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	labels := map[string]string{"fleet": namespace, "env": "prod"}
	secret := hubtest.Secret(namespace, "prod", labels, map[string][]byte{"value": access().Kubeconfig()})
	secret.Annotations = map[string]string{
		"note": "n", "kubectl.kubernetes.io/last-applied-configuration": `{"data":{"value":"the kubeconfig"}}`}
	hub.Put(t, secret)
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{
		Hub: hub.Config(), LabelSelector: "fleet=" + namespace, Keys: []string{"value"}}))
	engaged := r.WaitEngaged(t, namespace+"/prod")
	want := backends.Info{Labels: labels}
	if diff := cmp.Diff(want, engaged.Info); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	if got := engaged.Source.String(); got != "Secret "+namespace+"/prod" {
		t.Errorf("source is %q", got)
	}
}

func TestNewRefusesUnusableOptions(t *testing.T) {
	config := startHub(t).Config()
	tests := map[string]kubeconfig.Options{
		"no hub":                  {},
		"an empty namespace":      {Hub: config, Namespaces: []string{""}},
		"a selector that is none": {Hub: config, LabelSelector: "a in ("},
	}
	for name, opts := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := kubeconfig.New(opts); err == nil {
				t.Error("unusable options are accepted")
			}
		})
	}
}
