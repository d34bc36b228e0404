package inventory

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	conditions map[string]condition // by type; those that count for readiness
	access     offer
	unreadable bool // the object does not have the form of its version
	deselected bool // the options do not select it; then the rest but the reference is empty
}

// offer is what a profile says about access, not parsed yet: most heartbeats are compared and never parsed.
type offer struct {
	accessProviders, credentialProviders []any // JSON, as decoded
}

// viewProfile picks what matters out of a ClusterProfile. It does not convert the whole object into its type:
// that takes ten times as long, for a heartbeat of which nothing is new. Of its conditions it sees those given.
func viewProfile(u *unstructured.Unstructured, conditions []Condition) profile {
	var r reader
	status := r.object(u.Object, "status")
	spec := r.object(u.Object, "spec")
	labels := u.GetLabels()
	view := profile{
		reference: hub.Reference(u),
		created:   u.GetCreationTimestamp().Time,
		info: backends.Info{
			DisplayName:       r.text(spec, "displayName"),
			Manager:           r.text(r.object(spec, "clusterManager"), "name"),
			KubernetesVersion: r.text(r.object(status, "version"), "kubernetes"),
			Labels:            labels,
			Annotations:       u.GetAnnotations(),
		},
		// Lists, or null: what is in them is looked at where they are parsed.
		access: offer{
			accessProviders:     r.list(status, "accessProviders"),
			credentialProviders: r.list(status, "credentialProviders"),
		},
	}
	if properties := r.objects(status, "properties"); len(properties) > 0 {
		view.info.Properties = make(map[string]string, len(properties))
		for _, property := range properties {
			view.info.Properties[r.text(property, "name")] = r.text(property, "value")
		}
	}
	view.hints = backends.Identity{
		MemberID:   labels[memberIDLabel],
		ClusterID:  view.info.Properties[clusterIDProperty],
		ClusterSet: view.info.Properties[clusterSetProperty],
	}
	view.hints.ClusterSet = cmp.Or(view.hints.ClusterSet, labels[v1alpha1.LabelClusterSetKey], labels[clusterSetLabel])
	for _, c := range r.objects(status, "conditions") {
		name := r.text(c, "type")
		if !slices.ContainsFunc(conditions, func(c Condition) bool { return c.Type == name }) {
			continue
		}
		said := condition{status: metav1.ConditionStatus(r.text(c, "status"))}
		if said.status != metav1.ConditionTrue {
			said.message = r.text(c, "message")
		}
		if view.conditions == nil {
			view.conditions = make(map[string]condition, len(conditions))
		}
		view.conditions[name] = said
	}
	view.unreadable = r.wrong
	return view
}

// reader reads fields of decoded JSON, where null counts as absent, and notes whether one had the wrong type.
type reader struct{ wrong bool }

func (r *reader) object(parent map[string]any, field string) map[string]any {
	return as[map[string]any](r, parent[field])
}

func (r *reader) text(parent map[string]any, field string) string {
	return as[string](r, parent[field])
}

func (r *reader) list(parent map[string]any, field string) []any { return as[[]any](r, parent[field]) }

// objects returns the elements of a list of objects.
func (r *reader) objects(parent map[string]any, field string) []map[string]any {
	list := r.list(parent, field)
	if len(list) == 0 {
		return nil
	}
	objects := make([]map[string]any, len(list))
	for i, element := range list {
		objects[i] = as[map[string]any](r, element)
	}
	return objects
}

func as[T any](r *reader, value any) (typed T) {
	if value == nil {
		return typed
	}
	typed, ok := value.(T)
	r.wrong = r.wrong || !ok
	return typed
}
