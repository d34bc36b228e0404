package capi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// oldCluster returns a Cluster at v1beta1, as Cluster API v1.9 writes it.
func oldCluster(namespace, name string, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"controlPlaneEndpoint": map[string]any{"host": "prod.example.com", "port": int64(6443)},
			"infrastructureRef": map[string]any{
				"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AWSManagedCluster", "name": name},
			"controlPlaneRef": map[string]any{
				"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "AWSManagedControlPlane", "name": name},
			"topology": map[string]any{"class": "eks", "version": "v1.33.1"},
		},
		"status": status,
	}}
}

// fullCluster is the v1beta2 form of what oldCluster returns.
func fullCluster(namespace, name string) *clusterv1.Cluster {
	cluster := newCluster(namespace, name, true)
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "prod.example.com", Port: 6443}
	cluster.Spec.InfrastructureRef.Kind = "AWSManagedCluster"
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io", Kind: "AWSManagedControlPlane", Name: name}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "eks"}, Version: "v1.33.1"}
	cluster.Status.Phase = string(clusterv1.ClusterPhaseProvisioned)
	cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterAvailableCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.AvailableReason, LastTransitionTime: metav1.Now()}}
	return cluster
}

// wantInfo is what both forms tell.
func wantInfo() backends.Info {
	return backends.Info{
		Manager: "cluster-api", KubernetesVersion: "v1.33.1",
		Properties: map[string]string{
			capi.PropertyInfrastructureKind:      "AWSManagedCluster",
			capi.PropertyControlPlaneKind:        "AWSManagedControlPlane",
			capi.PropertyTopologyClass:           "eks",
			capi.PropertyPhase:                   "Provisioned",
			capi.PropertyCondition + "Available": "True",
		},
	}
}

// A hub is upgraded from v1beta1 alone over both versions to v1beta2 alone while the backend runs. Nothing is
// disengaged, and the cluster's entry says the same in every version.
func TestHubIsUpgraded(t *testing.T) {
	const crd = "clusters.cluster.x-k8s.io"
	hub := hubtest.New(t, planes.Get(t, controlplane.Options{
		Name: "upgraded", CRDs: []controlplane.CRDs{controlplane.ClusterAPI}}))
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	hub.Serve(t, crd, "v1beta1", true) // an earlier run of this test ended without it
	hub.Store(t, crd, "v1beta1")
	hub.Serve(t, crd, "v1beta2", false)
	access := backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}
	hub.Put(t, newSecret(namespace, "prod", access.Kubeconfig()))
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))

	available := map[string]any{"conditions": []any{map[string]any{
		"type": "Available", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}
	hub.Put(t, oldCluster(namespace, "prod", map[string]any{"phase": "Provisioned", "v1beta2": available}))
	r.WaitHeld(t, member, backends.ReasonControlPlaneNotInitialized)
	hub.Put(t, oldCluster(namespace, "prod", map[string]any{"phase": "Provisioned", "controlPlaneReady": true, "v1beta2": available}))
	at := func(version string) func(backendtest.Fleet) bool {
		return func(f backendtest.Fleet) bool {
			engaged := f.Members[member].Engaged
			return engaged != nil && strings.HasSuffix(engaged.Source.APIVersion, "/"+version)
		}
	}
	check := func(version string) {
		t.Helper()
		engaged := r.Wait(t, "engaged at "+version, at(version)).Members[member].Engaged
		if diff := cmp.Diff(wantInfo(), engaged.Info); diff != "" {
			t.Errorf("info at %s (-want +got):\n%s", version, diff)
		}
	}
	check("v1beta1")
	seen := len(r.Calls())

	hub.Serve(t, crd, "v1beta2", true)
	hub.Store(t, crd, "v1beta2")
	r.Wait(t, "seen at v1beta2", func(f backendtest.Fleet) bool {
		held := f.Members[member].Held
		return at("v1beta2")(f) || held != nil && strings.HasSuffix(held.Source.APIVersion, "/v1beta2")
	})
	// Here is no webhook of Cluster API's that would convert the status.
	hub.Put(t, fullCluster(namespace, "prod"))
	check("v1beta2")

	hub.Serve(t, crd, "v1beta1", false)
	hub.Label(t, fullCluster(namespace, "prod"), map[string]string{"step": "last"})
	r.Wait(t, "followed without v1beta1", func(f backendtest.Fleet) bool {
		engaged := f.Members[member].Engaged
		return engaged != nil && engaged.Info.Labels["step"] == "last"
	})
	for _, call := range r.Calls()[seen:] {
		if call.Method == "Disengage" || call.Member.Held != nil && !call.Member.Held.Keep {
			t.Errorf("%s(%s) ends the engagement: %s", call.Method, call.Name, call.Member)
		}
	}
}

// Releases before v1.11 make the control plane ready after it is initialized; only a condition tells then.
func TestInitializedByCondition(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	hub.Serve(t, "clusters.cluster.x-k8s.io", "v1beta2", false)
	t.Cleanup(func() { hub.Serve(t, "clusters.cluster.x-k8s.io", "v1beta2", true) })
	hub.Put(t, newSecret(namespace, "prod", backendtest.Access{Server: "https://prod.example.com:6443", Token: "t"}.Kubeconfig()))
	hub.Put(t, oldCluster(namespace, "prod", map[string]any{"controlPlaneReady": false, "conditions": []any{map[string]any{
		"type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}))
	r := backendtest.Start(t, newBackend(t, capi.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	r.WaitEngaged(t, namespace+"/prod")
}
