package capi

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// clusterKind is the kind Cluster in the versions that viewCluster understands.
func clusterKind() hub.Kind {
	return hub.Kind{Group: clusterv1.GroupVersion.Group, Resource: "clusters", Versions: []string{clusterv1.GroupVersion.Version}}
}

// cluster is what matters of a Cluster, in whatever version it was read.
type cluster struct {
	reference   backends.ObjectReference
	info        backends.Info
	deleting    bool
	paused      bool
	initialized bool
	unreadable  bool // the object does not have the form of its version
}

func viewCluster(u *unstructured.Unstructured) cluster {
	view := cluster{
		reference: hub.Reference(u),
		info:      backends.Info{Manager: "cluster-api", Labels: u.GetLabels(), Annotations: u.GetAnnotations()},
		deleting:  !u.GetDeletionTimestamp().IsZero(),
	}
	var c clusterv1.Cluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c); err != nil {
		// The error is not passed on: it quotes what it stumbled over.
		view.unreadable = true
		return view
	}
	_, annotated := c.Annotations[clusterv1.PausedAnnotation]
	view.paused = annotated || isTrue(c.Spec.Paused)
	view.initialized = isTrue(c.Status.Initialization.ControlPlaneInitialized)
	view.info.KubernetesVersion = c.Spec.Topology.Version
	return view
}

func isTrue(b *bool) bool { return b != nil && *b }
