package capi_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

func startHub(t *testing.T) *hubtest.Hub {
	return hubtest.New(t, planes.Get(t, controlplane.Options{
		Name: "hub", CRDs: []controlplane.CRDs{controlplane.ClusterAPI}}))
}

func newBackend(t *testing.T, opts capi.Options) *capi.Backend {
	t.Helper()
	b, err := capi.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newCluster returns a Cluster whose control plane is initialized or not.
func newCluster(namespace, name string, initialized bool) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DockerCluster", Name: name},
		},
	}
	if initialized {
		yes := true
		cluster.Status.Initialization.ControlPlaneInitialized = &yes
	}
	return cluster
}

// newSecret returns the Secret that a control plane provider writes for a Cluster.
func newSecret(namespace, cluster string, kubeconfig []byte) *corev1.Secret {
	secret := hubtest.Secret(namespace, cluster+"-kubeconfig",
		map[string]string{"cluster.x-k8s.io/cluster-name": cluster}, map[string][]byte{"value": kubeconfig})
	secret.Type = "cluster.x-k8s.io/secret"
	return secret
}

func TestConformance(t *testing.T) {
	hub := startHub(t)
	backendtest.Run(t, backendtest.Harness{
		New: func(t *testing.T) backendtest.Inventory {
			hub := startHub(t)
			namespace := hub.Namespace(t, nil)
			return backendtest.Inventory{
				Backend: newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}),
				Member:  func(name string) string { return namespace + "/" + name },
				Put: func(t *testing.T, name string, a backendtest.Access) {
					hub.Put(t, newSecret(namespace, name, a.Kubeconfig()))
					hub.Put(t, newCluster(namespace, name, true))
				},
				Break: func(t *testing.T, name string) {
					hub.Put(t, newSecret(namespace, name, backendtest.BrokenKubeconfig()))
				},
				Delete: func(t *testing.T, name string) { hub.Delete(t, newCluster(namespace, name, true)) },
			}
		},
		StopHub: func(t *testing.T) {
			if err := hub.StopAPIServer(); err != nil {
				t.Fatal(err)
			}
		},
		StartHub: func(t *testing.T) {
			if err := hub.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// A Cluster becomes ready in steps that different controllers take, in any order.
func TestReadiness(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))

	hub.Put(t, newCluster(namespace, "prod", false))
	hold := r.WaitHeld(t, member, backends.ReasonControlPlaneNotInitialized)
	if !hold.Keep || hold.Rejected {
		t.Errorf("held as %+v, want it to be waited for, and a running engagement kept", hold)
	}

	hub.Put(t, newCluster(namespace, "prod", true))
	r.WaitHeld(t, member, backends.ReasonSecretNotFound)

	secret := newSecret(namespace, "prod", nil)
	hub.Put(t, secret)
	r.WaitHeld(t, member, backends.ReasonKeyNotFound)

	// The Secret's arrival is no event of the Cluster.
	hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
	engaged := r.WaitEngaged(t, member)
	if engaged.Info.Manager != "cluster-api" || engaged.Source.Kind != "Cluster" {
		t.Errorf("engaged with info %+v from %s", engaged.Info, engaged.Source)
	}

	hub.Delete(t, secret)
	if hold := r.WaitHeld(t, member, backends.ReasonSecretNotFound); !hold.Keep {
		t.Error("a missing Secret ends the engagement")
	}
}

func TestPausedStartsNothingAndStopsNothing(t *testing.T) {
	hub := startHub(t)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	paused := true
	for name, pause := range map[string]func(*clusterv1.Cluster){
		"spec":       func(c *clusterv1.Cluster) { c.Spec.Paused = &paused },
		"annotation": func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} },
	} {
		t.Run(name, func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			member := namespace + "/prod"
			r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
			hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
			cluster := newCluster(namespace, "prod", true)
			pause(cluster)
			hub.Put(t, cluster)
			if hold := r.WaitHeld(t, member, backends.ReasonPaused); !hold.Keep {
				t.Error("pausing ends the engagement")
			}
			hub.Put(t, newCluster(namespace, "prod", true))
			r.WaitEngaged(t, member)
		})
	}
}

// A Cluster is disengaged when its deletion begins, not when its finalizers are done.
func TestDeletionTimestampDisengages(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
	cluster := newCluster(namespace, "prod", true)
	cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
	hub.Put(t, cluster)
	r.WaitEngaged(t, namespace+"/prod")
	hub.Delete(t, cluster)
	r.WaitDisengaged(t, namespace+"/prod")
	hub.Put(t, newCluster(namespace, "prod", true)) // without the finalizer, so that it can go
}

// The kubeconfig that policy refuses ends an engagement that runs with an earlier one.
func TestPolicyViolation(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	hub.Put(t, newCluster(namespace, "prod", true))
	hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
	r.WaitEngaged(t, namespace+"/prod")
	access.Server = "http://prod.example.com"
	hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
	if hold := r.WaitHeld(t, namespace+"/prod", backends.ReasonPolicyViolation); hold.Keep || !hold.Rejected {
		t.Errorf("held as %+v, want rejected and not kept", hold)
	}
}

// Secrets that carry the label but are no kubeconfigs, and such without a Cluster, make no members.
func TestOtherSecretsAreIgnored(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	hub.Put(t, newSecret(namespace, "orphan", access.Kubeconfig()))
	ca := newSecret(namespace, "prod", nil)
	ca.Name = "prod-ca"
	hub.Put(t, ca)
	hub.Put(t, newCluster(namespace, "prod", true))
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	r.WaitSynced(t)
	for name, member := range r.Fleet().Members {
		if name != namespace+"/prod" && member.Disengaged == "" {
			t.Errorf("unexpected member %s: %s", name, member)
		}
	}
	r.WaitHeld(t, namespace+"/prod", backends.ReasonSecretNotFound)
}

func TestNewRefusesUnusableOptions(t *testing.T) {
	config := startHub(t).Config()
	tests := map[string]capi.Options{
		"no hub":                         {},
		"an empty namespace":             {Hub: config, Namespaces: []string{""}},
		"a selector that is none":        {Hub: config, LabelSelector: "a in ("},
		"a template that is a name":      {Hub: config, SecretName: "kubeconfig"},
		"a template with two Clusters":   {Hub: config, SecretName: "{{cluster}}-{{cluster}}"},
		"a template that makes no names": {Hub: config, SecretName: "{{cluster}}_kubeconfig"},
		"an empty key":                   {Hub: config, SecretKeys: []string{"value", ""}},
		"a key that refers to a file":    {Hub: config, SecretKeys: []string{"relative"}},
		"a key that holds a token":       {Hub: config, SecretKeys: []string{"token-file"}},
	}
	for name, opts := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := capi.New(opts); err == nil {
				t.Error("unusable options are accepted")
			}
		})
	}
}

// A Cluster whose Secrets may not be read is held for that, and a running engagement is kept.
func TestForbiddenSecrets(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	hub.Put(t, newCluster(namespace, "prod", true))
	rules := rbacv1.PolicyRule{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"list", "watch"}}
	user, err := hub.NewUser(t.Context(), "reader-of-"+namespace, rules)
	if err != nil {
		t.Fatal(err)
	}
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: token.Config(), Namespaces: []string{namespace}}))
	if hold := r.WaitHeld(t, namespace+"/prod", backends.ReasonHubForbidden); !hold.Keep || hold.Rejected {
		t.Errorf("held as %+v, want waited for and kept", hold)
	}
	r.WaitHealth(t, backends.ReasonHubForbidden)
	if n := r.Fleet().Synced; n > 0 {
		t.Error("synced without having seen the Secrets")
	}
}
