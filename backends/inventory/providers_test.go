package inventory_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
)

func ocm() access.Provider {
	return access.Provider{
		Name: "open-cluster-management",
		ExecConfig: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "/usr/bin/secretreader",
			ProvideClusterInfo: true, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		},
	}
}

// offer returns an access provider as a manager writes it into a profile's status.
func offer(name, server string) v1alpha1.AccessProvider {
	return v1alpha1.AccessProvider{Name: name, Cluster: clientcmdv1.Cluster{
		Server: server,
		Extensions: []clientcmdv1.NamedExtension{{
			Name:      "client.authentication.k8s.io/exec",
			Extension: runtime.RawExtension{Raw: []byte(`{"clusterName":"prod"}`)},
		}},
	}}
}

func TestAccessProviders(t *testing.T) {
	const server = "https://proxy.example.com:9092/prod"
	engagedAt := func(server string) func(backends.Cluster) bool {
		return func(c backends.Cluster) bool { return c.Connection.Endpoint.Server == server }
	}
	tests := []struct {
		name       string
		status     v1alpha1.ClusterProfileStatus
		wantReason backends.Reason
		wantSpec   func(backends.Cluster) bool
	}{
		{name: "none yet", wantReason: backends.ReasonNoAccessProvider},
		{
			name:       "unknown ones only",
			status:     v1alpha1.ClusterProfileStatus{AccessProviders: []v1alpha1.AccessProvider{offer("other", server)}},
			wantReason: backends.ReasonNoMatchingProvider,
		},
		{
			name:       "an empty server",
			status:     v1alpha1.ClusterProfileStatus{AccessProviders: []v1alpha1.AccessProvider{offer("open-cluster-management", "")}},
			wantReason: backends.ReasonInvalidAccess,
		},
		{
			name:       "plain HTTP",
			status:     v1alpha1.ClusterProfileStatus{AccessProviders: []v1alpha1.AccessProvider{offer("open-cluster-management", "http://prod.example.com")}},
			wantReason: backends.ReasonPolicyViolation,
		},
		{
			name:     "the deprecated field",
			status:   v1alpha1.ClusterProfileStatus{CredentialProviders: []v1alpha1.AccessProvider{offer("open-cluster-management", server)}},
			wantSpec: engagedAt(server),
		},
		{
			name: "both fields, of which the newer wins",
			status: v1alpha1.ClusterProfileStatus{
				AccessProviders:     []v1alpha1.AccessProvider{offer("open-cluster-management", server)},
				CredentialProviders: []v1alpha1.AccessProvider{offer("open-cluster-management", "https://old.example.com")},
			},
			wantSpec: engagedAt(server),
		},
	}
	hub := startHub(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			profile := newProfile(namespace, "prod", metav1.ConditionTrue)
			profile.Status.AccessProviders = test.status.AccessProviders
			profile.Status.CredentialProviders = test.status.CredentialProviders
			hub.Put(t, profile)
			backend, err := inventory.New(inventory.Options{
				Hub: hub.Config(), Namespaces: []string{namespace}, Providers: []access.Provider{ocm()}})
			if err != nil {
				t.Fatal(err)
			}
			r := backendtest.Start(t, backend)
			if test.wantSpec == nil {
				r.WaitHeld(t, namespace+"/prod", test.wantReason)
				return
			}
			c := r.WaitEngaged(t, namespace+"/prod")
			exec := c.Connection.Auth.Exec
			if !test.wantSpec(c) || exec == nil || exec.Command != ocm().ExecConfig.Command ||
				exec.ClusterConfig.Reveal() != `{"clusterName":"prod"}` {
				t.Errorf("engaged with another connection: %+v", c.Connection)
			}
		})
	}
}

// A profile that lists no provider which is configured is reached by its Secret, until it lists one.
func TestAccessProviderWinsOverSecret(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	r := backendtest.Start(t, newBackend(t, inventory.Options{
		Hub: hub.Config(), Namespaces: []string{namespace}, Providers: []access.Provider{ocm()}}))
	hub.Put(t, newProfile(namespace, "prod", metav1.ConditionTrue))
	r.WaitHeld(t, namespace+"/prod", backends.ReasonNoAccess)
	hub.Put(t, secretReading(namespace, "prod", accessTo("prod").Kubeconfig()))
	r.WaitEngaged(t, namespace+"/prod")
	profile := newProfile(namespace, "prod", metav1.ConditionTrue)
	profile.Status.AccessProviders = []v1alpha1.AccessProvider{offer("open-cluster-management", "https://proxy.example.com/prod")}
	hub.Put(t, profile)
	r.Wait(t, "the access provider is used", func(f backendtest.Fleet) bool {
		c := f.Members[namespace+"/prod"].Engaged
		return c != nil && c.Connection.Auth.Exec != nil
	})
}

func TestNewRefusesUnusableOptions(t *testing.T) {
	hub := startHub(t)
	valid := func() inventory.Options {
		return inventory.Options{Hub: hub.Config(), Consumer: consumer}
	}
	tests := map[string]func(*inventory.Options){
		"no hub":                            func(o *inventory.Options) { o.Hub = nil },
		"neither consumer nor provider":     func(o *inventory.Options) { o.Consumer = "" },
		"a consumer that is no label value": func(o *inventory.Options) { o.Consumer = "a b" },
		"an empty namespace":                func(o *inventory.Options) { o.Namespaces = []string{"a", ""} },
		"consumer namespaces alone":         func(o *inventory.Options) { o.ConsumerNamespaces = []string{"a"} },
		"a selector that is none":           func(o *inventory.Options) { o.LabelSelector = "a in (" },
		"a placement without a key":         func(o *inventory.Options) { o.Placement = &inventory.Placement{} },
		"a placement key that is no label":  func(o *inventory.Options) { o.Placement = &inventory.Placement{Key: "a b"} },
		"a condition without a type":        func(o *inventory.Options) { o.Readiness.Conditions = []inventory.Condition{{}} },
		"a negative time to disengage":      func(o *inventory.Options) { o.Readiness.DisengageAfter = -1 },
		"a meaning that is none": func(o *inventory.Options) {
			o.Readiness.Conditions = []inventory.Condition{{Type: "a", False: "ready"}}
		},
		"a provider without a name":           func(o *inventory.Options) { o.Providers = []access.Provider{{}} },
		"a provider that says nothing to run": func(o *inventory.Options) { o.Providers = []access.Provider{{Name: "a"}} },
		"providers in a file and besides it":  func(o *inventory.Options) { o.Providers, o.ProviderFile = []access.Provider{ocm()}, "f" },
		"two providers of one name":           func(o *inventory.Options) { o.Providers = []access.Provider{ocm(), ocm()} },
	}
	if _, err := inventory.New(valid()); err != nil {
		t.Errorf("valid options are refused: %v", err)
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			opts := valid()
			spoil(&opts)
			if _, err := inventory.New(opts); err == nil {
				t.Error("unusable options are accepted")
			}
		})
	}
}
