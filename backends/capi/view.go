package capi

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	//lint:ignore SA1019 hubs before Cluster API v1.11 serve nothing else
	"sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// clusterKind is the kind Cluster in the versions that viewCluster understands. Cluster API v1.11 to v1.15 serve
// both, older ones v1beta1, newer ones v1beta2.
func clusterKind() hub.Kind {
	return hub.Kind{
		Group: clusterv1.GroupVersion.Group, Resource: "clusters",
		Versions: []string{clusterv1.GroupVersion.Version, v1beta1.GroupVersion.Version},
	}
}

// Cluster is what matters of a Cluster object, in whatever version the hub serves it. Maps are read-only.
type Cluster struct {
	// Namespace, Name, Labels and Annotations are the object's.
	Namespace, Name     string
	Labels, Annotations map[string]string
	// InfrastructureKind and ControlPlaneKind are the kinds of the objects that provide them, such as
	// "AWSManagedCluster" and "KubeadmControlPlane"; empty if the Cluster has none (yet).
	InfrastructureKind, ControlPlaneKind string
	// TopologyClass and TopologyVersion are the ClusterClass and the Kubernetes version of a managed topology;
	// empty without one.
	TopologyClass, TopologyVersion string
	// Phase is status.phase, for people.
	Phase string
	// ControlPlaneEndpoint is "host:port"; empty if it is not known yet.
	ControlPlaneEndpoint string
	// InfrastructureProvisioned and ControlPlaneInitialized are set once, and never reset (though clusterctl
	// move empties the status for a while).
	InfrastructureProvisioned, ControlPlaneInitialized bool
	// Paused says that spec or annotation keep controllers from working on the Cluster.
	Paused bool
	// Conditions are the status of each condition, by type, as Cluster API's v1beta2 names and defines them. For
	// releases before v1.9, which do not write those, they are v1beta1's, which mean other things.
	Conditions map[string]metav1.ConditionStatus
}

// cluster is the view of a Cluster object.
type cluster struct {
	Cluster
	reference  backends.ObjectReference
	deleting   bool
	unreadable bool // the object does not have the form of its version

	// infrastructure and controlPlane are the providing objects, which may own the kubeconfig Secret.
	infrastructure, controlPlane provider
}

// provider is an object in the Cluster's namespace that provides a part of the cluster.
type provider struct{ group, kind, name string }

func (p provider) groupKind() schema.GroupKind { return schema.GroupKind{Group: p.group, Kind: p.kind} }

func viewCluster(u *unstructured.Unstructured) cluster {
	view := cluster{
		reference: hub.Reference(u),
		deleting:  !u.GetDeletionTimestamp().IsZero(),
		Cluster: Cluster{Namespace: u.GetNamespace(), Name: u.GetName(),
			Labels: u.GetLabels(), Annotations: u.GetAnnotations()},
	}
	read := view.readV1Beta2
	if u.GroupVersionKind().Version == v1beta1.GroupVersion.Version {
		read = view.readV1Beta1
	}
	// The error is not passed on: it quotes what it stumbled over.
	view.unreadable = read(u.Object) != nil
	view.InfrastructureKind, view.ControlPlaneKind = view.infrastructure.kind, view.controlPlane.kind
	if _, annotated := view.Annotations[clusterv1.PausedAnnotation]; annotated {
		view.Paused = true
	}
	return view
}

func (v *cluster) readV1Beta2(object map[string]any) error {
	var c clusterv1.Cluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &c); err != nil {
		return err
	}
	v.infrastructure, v.controlPlane = providerAt(c.Spec.InfrastructureRef), providerAt(c.Spec.ControlPlaneRef)
	v.TopologyClass, v.TopologyVersion = c.Spec.Topology.ClassRef.Name, c.Spec.Topology.Version
	v.Phase = c.Status.Phase
	if c.Spec.ControlPlaneEndpoint.IsValid() {
		v.ControlPlaneEndpoint = c.Spec.ControlPlaneEndpoint.String()
	}
	v.InfrastructureProvisioned = isTrue(c.Status.Initialization.InfrastructureProvisioned)
	v.ControlPlaneInitialized = isTrue(c.Status.Initialization.ControlPlaneInitialized)
	v.Paused = isTrue(c.Spec.Paused)
	v.Conditions = statuses(c.Status.Conditions)
	return nil
}

func (v *cluster) readV1Beta1(object map[string]any) error {
	var c v1beta1.Cluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &c); err != nil {
		return err
	}
	v.infrastructure, v.controlPlane = oldProviderAt(c.Spec.InfrastructureRef), oldProviderAt(c.Spec.ControlPlaneRef)
	if topology := c.Spec.Topology; topology != nil {
		v.TopologyClass, v.TopologyVersion = topology.Class, topology.Version
	}
	v.Phase = c.Status.Phase
	if c.Spec.ControlPlaneEndpoint.IsValid() {
		v.ControlPlaneEndpoint = c.Spec.ControlPlaneEndpoint.String()
	}
	v.InfrastructureProvisioned = c.Status.InfrastructureReady
	v.Paused = c.Spec.Paused
	old := make(map[string]metav1.ConditionStatus, len(c.Status.Conditions))
	for _, condition := range c.Status.Conditions {
		old[string(condition.Type)] = metav1.ConditionStatus(condition.Status)
	}
	// Releases that serve v1beta2, too, make controlPlaneReady of its controlPlaneInitialized. In older ones it
	// comes later, and only the condition tells when the control plane is initialized.
	v.ControlPlaneInitialized = c.Status.ControlPlaneReady ||
		old[string(v1beta1.ControlPlaneInitializedCondition)] == metav1.ConditionTrue
	v.Conditions = old
	if c.Status.V1Beta2 != nil {
		v.Conditions = statuses(c.Status.V1Beta2.Conditions)
	}
	if len(v.Conditions) == 0 {
		v.Conditions = nil
	}
	return nil
}

func providerAt(ref clusterv1.ContractVersionedObjectReference) provider {
	return provider{ref.APIGroup, ref.Kind, ref.Name}
}

func oldProviderAt(ref *corev1.ObjectReference) provider {
	if ref == nil {
		return provider{}
	}
	return provider{ref.GroupVersionKind().Group, ref.Kind, ref.Name}
}

func statuses(conditions []metav1.Condition) map[string]metav1.ConditionStatus {
	if len(conditions) == 0 {
		return nil
	}
	all := make(map[string]metav1.ConditionStatus, len(conditions))
	for _, condition := range conditions {
		all[condition.Type] = condition.Status
	}
	return all
}

func isTrue(b *bool) bool { return b != nil && *b }

// Properties of a member, as far as its Cluster has them.
const (
	// PropertyInfrastructureKind and PropertyControlPlaneKind are kinds such as "AWSManagedCluster".
	PropertyInfrastructureKind = "cluster.x-k8s.io/infrastructure-kind"
	PropertyControlPlaneKind   = "cluster.x-k8s.io/control-plane-kind"
	// PropertyTopologyClass is the name of the ClusterClass.
	PropertyTopologyClass = "cluster.x-k8s.io/topology-class"
	// PropertyPhase is the Cluster's phase, such as "Provisioned".
	PropertyPhase = "cluster.x-k8s.io/phase"
	// PropertyCondition is the beginning of the properties for conditions: "…/Available" is "True", "False" or "Unknown".
	PropertyCondition = "condition.cluster.x-k8s.io/"
	// PropertyWarnings tells people what is odd about the cluster's entry and does not keep it from being engaged.
	PropertyWarnings = "cluster.x-k8s.io/warnings"
)

// shownConditions are the conditions that say something about the cluster as a whole.
var shownConditions = [...]string{
	clusterv1.ClusterAvailableCondition, clusterv1.ClusterControlPlaneAvailableCondition,
	clusterv1.ClusterWorkersAvailableCondition, clusterv1.ClusterRemoteConnectionProbeCondition,
	clusterv1.ClusterTopologyReconciledCondition,
}

// info is what reconcilers are told of the Cluster.
func (v *cluster) info() backends.Info {
	properties := map[string]string{
		PropertyInfrastructureKind: v.InfrastructureKind,
		PropertyControlPlaneKind:   v.ControlPlaneKind,
		PropertyTopologyClass:      v.TopologyClass,
		PropertyPhase:              v.Phase,
	}
	for _, condition := range shownConditions {
		properties[PropertyCondition+condition] = string(v.Conditions[condition])
	}
	maps.DeleteFunc(properties, func(_, value string) bool { return value == "" })
	return backends.Info{
		Manager: "cluster-api", KubernetesVersion: v.TopologyVersion,
		Labels: v.Labels, Annotations: v.Annotations, Properties: properties,
	}
}
