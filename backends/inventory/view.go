package inventory

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

const (
	// memberIDLabel is from KEP-4322; the API's module has no constant for it.
	memberIDLabel = "multicluster.x-k8s.io/inventory-member-id"
	// clusterIDProperty and clusterSetProperty are from KEP-2149.
	clusterIDProperty  = "cluster.clusterset.k8s.io"
	clusterSetProperty = "clusterset.k8s.io"
)

// profileKind is the kind ClusterProfile in the versions that viewProfile understands.
func profileKind() hub.Kind {
	return hub.Kind{
		Group: v1alpha1.GroupVersion.Group, Resource: "clusterprofiles", Versions: []string{v1alpha1.GroupVersion.Version},
	}
}

// profile is what matters of a ClusterProfile, in whatever version it was read. Times of heartbeats do not.
type profile struct {
	reference  backends.ObjectReference
	created    time.Time
	info       backends.Info
	hints      backends.Identity
	healthy    metav1.ConditionStatus  // empty if the condition is not there
	unhealthy  string                  // the condition's message
	access     v1alpha1.ClusterProfile // name and access providers, nothing else
	unreadable bool                    // the object does not have the form of its version
}

func viewProfile(u *unstructured.Unstructured) profile {
	view := profile{
		reference: hub.Reference(u),
		created:   u.GetCreationTimestamp().Time,
		info:      backends.Info{Labels: u.GetLabels(), Annotations: u.GetAnnotations()},
	}
	var p v1alpha1.ClusterProfile
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
		// The error is not passed on: it quotes what it stumbled over.
		view.unreadable = true
		return view
	}
	view.info.DisplayName = p.Spec.DisplayName
	view.info.Manager = p.Spec.ClusterManager.Name
	view.info.KubernetesVersion = p.Status.Version.Kubernetes
	if len(p.Status.Properties) > 0 {
		view.info.Properties = make(map[string]string, len(p.Status.Properties))
	}
	for _, property := range p.Status.Properties {
		view.info.Properties[property.Name] = property.Value
	}
	view.hints = backends.Identity{
		MemberID:   p.Labels[memberIDLabel],
		ClusterID:  view.info.Properties[clusterIDProperty],
		ClusterSet: view.info.Properties[clusterSetProperty],
	}
	if view.hints.ClusterSet == "" {
		view.hints.ClusterSet = p.Labels[v1alpha1.LabelClusterSetKey]
	}
	view.access.Namespace, view.access.Name = p.Namespace, p.Name
	view.access.Status.AccessProviders = p.Status.AccessProviders
	view.access.Status.CredentialProviders = p.Status.CredentialProviders
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ClusterConditionControlPlaneHealthy); c != nil {
		view.healthy = c.Status
		if c.Status != metav1.ConditionTrue {
			view.unhealthy = c.Message
		}
	}
	return view
}
