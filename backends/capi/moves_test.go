package capi_test

import (
	"strings"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// paused returns the Cluster as clusterctl pauses it.
func paused(c *clusterv1.Cluster) *clusterv1.Cluster {
	c.Spec.Paused = new(true)
	return c
}

// "clusterctl move" is replayed between two hubs. The source keeps the cluster through the move and for the grace period
// after it; the target engages it as soon as it is unpaused and has its status back.
func TestMove(t *testing.T) {
	source := startHub(t)
	target := hubtest.New(t, planes.Get(t, controlplane.Options{
		Name: "target", CRDs: []controlplane.CRDs{controlplane.ClusterAPI}}))
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	from, to := source.Namespace(t, nil), target.Namespace(t, nil)
	old, moved := from+"/prod", to+"/prod"
	const grace = 2 * time.Second
	a := backendtest.Start(t, newBackend(t, capi.Options{Hub: source.Config(), Namespaces: []string{from}, MoveGrace: grace}))
	b := backendtest.Start(t, newBackend(t, capi.Options{Hub: target.Config(), Namespaces: []string{to}, MoveGrace: grace}))
	original := newCluster(from, "prod", true)
	original.Finalizers = []string{clusterv1.ClusterFinalizer}
	source.Put(t, original)
	source.Put(t, newSecret(from, "prod", access.Kubeconfig()))
	a.WaitEngaged(t, old)
	seen := len(a.Calls())

	original = paused(original)
	source.Put(t, original)
	target.Put(t, paused(newCluster(to, "prod", false)))
	target.Put(t, newSecret(to, "prod", access.Kubeconfig()))
	a.WaitHeld(t, old, backends.ReasonPaused)
	b.WaitHeld(t, moved, backends.ReasonPaused)

	original.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	source.Put(t, original)
	source.Delete(t, newSecret(from, "prod", nil))
	source.Delete(t, original)
	a.WaitHeld(t, old, backends.ReasonMoving)
	original.Finalizers = nil
	gone := time.Now() // no later than it really is
	source.Put(t, original)

	target.Put(t, newCluster(to, "prod", false))
	b.WaitHeld(t, moved, backends.ReasonControlPlaneNotInitialized)
	target.Put(t, newCluster(to, "prod", true))
	b.WaitEngaged(t, moved)

	a.WaitDisengaged(t, old)
	if kept := time.Since(gone); kept < grace {
		t.Errorf("the source let the cluster go after %v, want %v of grace", kept, grace)
	}
	for _, call := range a.Calls()[seen:] {
		if call.Member.Held != nil && !call.Member.Held.Keep {
			t.Errorf("the source ended the engagement: %s", call.Member)
		}
	}
}

// A Cluster that comes back within the grace period was never away.
func TestMoveBack(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}, MoveGrace: time.Hour}))
	hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
	cluster := newCluster(namespace, "prod", true)
	cluster.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	hub.Put(t, cluster)
	r.WaitEngaged(t, member)
	seen := len(r.Calls())
	hub.Delete(t, cluster)
	r.WaitHeld(t, member, backends.ReasonMoving)
	hub.Put(t, newCluster(namespace, "prod", true))
	r.WaitEngaged(t, member)
	for _, call := range r.Calls()[seen:] {
		if call.Method == "Disengage" {
			t.Error("the cluster was disengaged")
		}
	}
	hub.Delete(t, cluster) // an ordinary deletion
	r.WaitDisengaged(t, member)
}

// With KeepUntilGone, controllers can clean up in a cluster whose Cluster is being deleted, until the Secret or the
// object itself is gone.
func TestKeepUntilGone(t *testing.T) {
	hub := startHub(t)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	for name, end := range map[string]func(*testing.T, string){
		"the object goes": func(t *testing.T, namespace string) { hub.Put(t, newCluster(namespace, "prod", true)) },
		"the Secret goes": func(t *testing.T, namespace string) { hub.Delete(t, newSecret(namespace, "prod", nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			member := namespace + "/prod"
			r := backendtest.Start(t, newBackend(t, capi.Options{
				Hub: hub.Config(), Namespaces: []string{namespace}, Deletion: capi.KeepUntilGone}))
			hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
			cluster := newCluster(namespace, "prod", true)
			cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
			hub.Put(t, cluster)
			r.WaitEngaged(t, member)
			hub.Delete(t, cluster)
			// Something that changes after the deletion has begun is still followed.
			cluster.Labels = map[string]string{"step": "cleanup"}
			hub.Label(t, cluster, cluster.Labels)
			r.Wait(t, "still engaged", func(f backendtest.Fleet) bool {
				engaged := f.Members[member].Engaged
				return engaged != nil && engaged.Info.Labels["step"] == "cleanup"
			})
			end(t, namespace)
			r.WaitDisengaged(t, member)
			hub.Put(t, newCluster(namespace, "prod", true)) // without the finalizer, so that it can go
		})
	}
}

// A predicate selects, and a Cluster that it no longer chooses is disengaged.
func TestSelect(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace},
		Select: func(c capi.Cluster) bool {
			return c.InfrastructureKind == "AWSManagedCluster" && c.TopologyClass == "eks"
		},
		Ready: func(c capi.Cluster) bool { return c.Conditions["Available"] == "True" },
	}))
	hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
	hub.Put(t, newCluster(namespace, "other", true))
	waiting := fullCluster(namespace, "prod")
	waiting.Status.Conditions[0].Status = "False"
	hub.Put(t, waiting)
	if hold := r.WaitHeld(t, member, backends.ReasonNotReady); !hold.Keep {
		t.Error("a Cluster that is not ready ends its engagement")
	}
	hub.Put(t, fullCluster(namespace, "prod"))
	r.WaitEngaged(t, member)
	hub.Put(t, newCluster(namespace, "prod", true))
	r.Wait(t, "deselected", func(f backendtest.Fleet) bool { return f.Members[member].Disengaged == backends.ReasonDeselected })
	if other := r.Fleet().Members[namespace+"/other"]; other.Engaged != nil || other.Held != nil {
		t.Errorf("a Cluster that is not selected is a member: %s", other)
	}
}

// The AWS provider's kubeconfig for users runs a command, which policy has to allow.
func TestExecIsRefused(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	kubeconfig := strings.Replace(twoContexts, "user: {token: t}",
		`user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: aws-iam-authenticator}}`, 1)
	hub.Put(t, newCluster(namespace, "prod", true))
	hub.Put(t, hubtest.Secret(namespace, "prod-user-kubeconfig", map[string]string{clusterv1.ClusterNameLabel: "prod-user"},
		map[string][]byte{"value": []byte(kubeconfig)}))
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}, SecretName: "{{cluster}}-user-kubeconfig"}))
	if hold := r.WaitHeld(t, namespace+"/prod", backends.ReasonPolicyViolation); !strings.Contains(hold.Message, "exec") {
		t.Errorf("held because %q, want exec named", hold.Message)
	}
}
