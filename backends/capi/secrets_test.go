package capi_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
)

// TestSecretNames shows how other providers' Secrets are used.
func TestSecretNames(t *testing.T) {
	hub := startHub(t)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	unused := backendtest.Access{Server: "https://unused.example.com:6443", Token: "unused"}.Kubeconfig()
	tests := map[string]struct {
		opts   capi.Options
		secret string
		label  string
		data   map[string][]byte
	}{
		"the default": {
			secret: "prod-kubeconfig", label: "prod",
			data: map[string][]byte{"value": access.Kubeconfig(), "relative": unused, "token-file": []byte("unused")},
		},
		"the user's kubeconfig of EKS and GKE": {
			opts:   capi.Options{SecretName: "{{cluster}}-user-kubeconfig"},
			secret: "prod-user-kubeconfig", label: "prod-user",
			data: map[string][]byte{"value": access.Kubeconfig()},
		},
		"Kamaji's keys, as far as they are there": {
			opts:   capi.Options{SecretName: "{{cluster}}-admin-kubeconfig", SecretKeys: []string{"super-admin.conf", "admin.conf"}},
			secret: "prod-admin-kubeconfig", label: "prod",
			data: map[string][]byte{"admin.conf": access.Kubeconfig(), "value": unused},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			test.opts.Hub, test.opts.Namespaces = hub.Config(), []string{namespace}
			hub.Put(t, newCluster(namespace, "prod", true))
			if test.secret != "prod-kubeconfig" {
				hub.Put(t, newSecret(namespace, "prod", unused))
			}
			hub.Put(t, hubtest.Secret(namespace, test.secret, map[string]string{clusterv1.ClusterNameLabel: test.label}, test.data))
			r := backendtest.Start(t, newBackend(t, test.opts))
			engaged := r.WaitEngaged(t, namespace+"/prod")
			if got := engaged.Connection.Endpoint.Server; got != access.Server {
				t.Errorf("engaged at %s, want %s", got, access.Server)
			}
			r.WaitSynced(t)
			if members := slices.Collect(maps.Keys(r.Fleet().Members)); len(members) != 1 {
				t.Errorf("members are %v, want one", members)
			}
		})
	}
}

// twoContexts is a kubeconfig whose current context is "first".
const twoContexts = `apiVersion: v1
kind: Config
current-context: first
clusters:
- {name: first, cluster: {server: "https://first.example.com"}}
- {name: second, cluster: {server: "https://second.example.com"}}
users: [{name: u, user: {token: t}}]
contexts:
- {name: first, context: {cluster: first, user: u}}
- {name: second, context: {cluster: second, user: u}}
`

func TestContext(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	hub.Put(t, newCluster(namespace, "prod", true))
	hub.Put(t, newSecret(namespace, "prod", []byte(twoContexts)))
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}, Context: "second"}))
	if got := r.WaitEngaged(t, namespace+"/prod").Connection.Endpoint.Server; got != "https://second.example.com" {
		t.Errorf("engaged at %s, want the second context's server", got)
	}
}

// bareSecret is a kubeconfig Secret as some providers write it: without a label, and with the default type.
func bareSecret(namespace, cluster string, kubeconfig []byte) *corev1.Secret {
	return hubtest.Secret(namespace, cluster+"-kubeconfig", nil, map[string][]byte{"value": kubeconfig})
}

// A Secret without label and type is used and reported. Once it has the label, its changes are noticed at once.
func TestUnlabelledSecret(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	hub.Put(t, newCluster(namespace, "prod", true))
	r.WaitHeld(t, member, backends.ReasonSecretNotFound)
	hub.Put(t, bareSecret(namespace, "prod", access.Kubeconfig()))
	warnings := r.WaitEngaged(t, member).Info.Properties[capi.PropertyWarnings]
	for _, want := range []string{"lacks the label", "has the type Opaque"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("the warnings are %q, want one that it %s", warnings, want)
		}
	}

	hub.Label(t, bareSecret(namespace, "prod", nil), map[string]string{clusterv1.ClusterNameLabel: "prod"})
	r.Wait(t, "the label is noticed", func(f backendtest.Fleet) bool {
		engaged := f.Members[member].Engaged
		return engaged != nil && !strings.Contains(engaged.Info.Properties[capi.PropertyWarnings], "label")
	})
	hub.Delete(t, bareSecret(namespace, "prod", nil))
	hub.Delete(t, newCluster(namespace, "prod", true))
	r.WaitDisengaged(t, member)
}

// A Secret arrives long after the Cluster's last event.
func TestSecretIsNoticedWithin2s(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	hub.Put(t, newCluster(namespace, "prod", true))
	r.WaitHeld(t, namespace+"/prod", backends.ReasonSecretNotFound)
	secret := newSecret(namespace, "prod", access.Kubeconfig())
	begin := time.Now()
	hub.Put(t, secret)
	r.WaitEngaged(t, namespace+"/prod")
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the Secret was noticed after %v, want 2s at most", took)
	}
}

// Names of Secrets are ambiguous, and Clusters are created again under their names; owners tell whose a Secret is.
func TestForeignSecretsAreIgnored(t *testing.T) {
	hub := startHub(t)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	owner := func(apiVersion, kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "of-another-object"}}
	}
	tests := map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"the Cluster's control plane":     {owner("controlplane.cluster.x-k8s.io/v1beta2", "AWSManagedControlPlane", "prod"), true},
		"something of a provider's":       {owner("kamaji.clastix.io/v1alpha1", "TenantControlPlane", "other"), true},
		"another Cluster's control plane": {owner("controlplane.cluster.x-k8s.io/v1beta1", "AWSManagedControlPlane", "other"), false},
		"a Cluster that had the name":     {owner("cluster.x-k8s.io/v1beta1", "Cluster", "prod"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			secret := newSecret(namespace, "prod", access.Kubeconfig())
			secret.OwnerReferences = test.owners
			hub.Put(t, secret)
			hub.Put(t, fullCluster(namespace, "prod"))
			r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
			if test.want {
				r.WaitEngaged(t, namespace+"/prod")
				return
			}
			hold := r.WaitHeld(t, namespace+"/prod", backends.ReasonSecretNotFound)
			if !strings.Contains(hold.Message, "belongs to "+test.owners[0].Kind+" "+test.owners[0].Name) {
				t.Errorf("held because %q, want its owner named", hold.Message)
			}
		})
	}
}

// Another server than the Cluster's endpoint is reported, and used: it may be a load balancer or a proxy.
func TestEndpointIsCompared(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	hub.Put(t, fullCluster(namespace, "prod"))
	hub.Put(t, newSecret(namespace, "prod", backendtest.Access{Server: "https://PROD.example.com:6443/path", Token: "t"}.Kubeconfig()))
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	if warnings := r.WaitEngaged(t, member).Info.Properties[capi.PropertyWarnings]; warnings != "" {
		t.Errorf("the same server makes the warnings %q", warnings)
	}
	hub.Put(t, newSecret(namespace, "prod", backendtest.Access{Server: "https://prod.example.com", Token: "t"}.Kubeconfig()))
	r.Wait(t, "the difference is reported", func(f backendtest.Fleet) bool {
		engaged := f.Members[member].Engaged
		return engaged != nil && strings.Contains(engaged.Info.Properties[capi.PropertyWarnings], "controlPlaneEndpoint prod.example.com:6443")
	})
}

// A Cluster's name that leaves no room for the Secret's is refused, without asking the hub again and again.
func TestSecretNameTooLong(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	name := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 55)
	hub.Put(t, newCluster(namespace, name, true))
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	if hold := r.WaitHeld(t, namespace+"/"+name, backends.ReasonInvalidAccess); !hold.Rejected {
		t.Errorf("held as %+v, want rejected", hold)
	}
}

// The minimal role suffices, and without "get" nothing but unlabelled Secrets is missed.
func TestMinimalRole(t *testing.T) {
	hub := startHub(t)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	for name, verbs := range map[string][]string{"with get": {"list", "watch", "get"}, "without get": {"list", "watch"}} {
		t.Run(name, func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			hub.Put(t, newCluster(namespace, "labelled", true))
			hub.Put(t, newSecret(namespace, "labelled", access.Kubeconfig()))
			hub.Put(t, newCluster(namespace, "bare", true))
			hub.Put(t, bareSecret(namespace, "bare", access.Kubeconfig()))
			user, err := hub.NewUser(t.Context(), "minimal-"+namespace,
				rbacv1.PolicyRule{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"list", "watch"}},
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs})
			if err != nil {
				t.Fatal(err)
			}
			token, err := user.Issue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r := backendtest.Start(t, newBackend(t, capi.Options{Hub: token.Config(), Namespaces: []string{namespace}}))
			r.WaitEngaged(t, namespace+"/labelled")
			r.WaitSynced(t)
			r.WaitHealth(t, "")
			if slices.Contains(verbs, "get") {
				r.WaitEngaged(t, namespace+"/bare")
				return
			}
			r.Wait(t, "the missing right is told", func(f backendtest.Fleet) bool {
				held := f.Members[namespace+"/bare"].Held
				return held != nil && held.Reason == backends.ReasonSecretNotFound && strings.Contains(held.Message, "forbidden")
			})
		})
	}
}
