package backends

import (
	"context"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/connection"
)

// Backend is one inventory of clusters. It decides when each of its clusters is engaged, re-engaged,
// held or disengaged, and says so to the Engager.
type Backend interface {
	// Run watches the inventory and reports to engager until ctx ends, when it returns nil, or until the
	// inventory fails for good, when it returns the error. Before it returns, every goroutine that it
	// started has ended, and it makes no further call to engager.
	//
	// A failed Run is started again with backoff; members reported by the earlier Run stay engaged meanwhile.
	// Trouble that can pass (a hub that is down, slow, forbids a list, or lacks a CRD) is no failure: Run
	// keeps trying, and says so with [Engager.Report]. It never disengages a member because of such trouble.
	//
	// A Backend is run at most once at a time.
	Run(ctx context.Context, engager Engager) error
}

// Engager takes a backend's decisions. Its methods declare levels, not edges: they return at once, do no
// I/O, may be repeated, and the last word about a member counts. They may be called concurrently, though
// calls about one member should come from one goroutine, or their order means nothing.
type Engager interface {
	// Engage says that the cluster exists and how it is reached. Said again with an equal Cluster, nothing
	// happens; with other Info, only Info changes; with another Connection, the cluster is re-engaged: its
	// credentials are swapped under it where it is the same cluster still, else it is replaced.
	Engage(cluster Cluster)

	// Hold says that the cluster exists but cannot be engaged now, why, and whether an engagement that
	// runs already is kept.
	Hold(name string, hold Hold)

	// Disengage says that the cluster has left the inventory. Disengaging an unknown name does nothing.
	Disengage(name string, reason Reason)

	// Synced says that every cluster of the inventory has been reported since Run began. Members that an
	// earlier Run reported, and this one has not, are disengaged now, and not before.
	Synced()

	// Report says how the inventory itself is doing. The zero Health means well.
	Report(health Health)
}

// Cluster is what an inventory knows of one cluster that can be engaged.
type Cluster struct {
	// Name names the cluster within its backend, by default "namespace/name" of its object. Required.
	Name string
	// Connection is how the cluster is reached. The backend has checked it against its policy already.
	Connection connection.Spec
	// Running is a cluster that somebody else has built and runs, to be engaged as it is; Connection is empty then. It must be
	// comparable. See package provider: an ordinary backend leaves it nil.
	Running cluster.Cluster
	// Info is what reconcilers may want to know of the cluster. Changing it never touches the connection.
	Info Info
	// Source is the object or file that lists the cluster, for Events and status.
	Source ObjectReference
	// Hints tell which physical cluster this is, as far as the inventory knows.
	Hints Identity
}

// Equal reports whether both say the same in every field.
func (c Cluster) Equal(o Cluster) bool {
	return c.Name == o.Name && c.Source == o.Source && c.Hints == o.Hints && c.Info.Equal(o.Info) && c.SameAccess(o)
}

// SameAccess reports whether both are reached in the same way.
func (c Cluster) SameAccess(o Cluster) bool {
	return c.Running == o.Running && c.Connection.Equal(o.Connection)
}

// Hold says why a listed cluster is not to be engaged now.
type Hold struct {
	// Reason is a stable word to alert on. Required.
	Reason Reason
	// Message explains the reason to a person. It holds no credential and no library's raw parser error.
	Message string
	// Rejected says that the cluster is refused or its data unusable (state Rejected), so somebody has to
	// mend it; otherwise the cluster is merely waited for (state Pending).
	Rejected bool
	// Keep says that an engagement that runs already stays as it is. Otherwise it is disengaged.
	Keep bool

	// Info, Source and Hints are those of Cluster.
	Info   Info
	Source ObjectReference
	Hints  Identity
}

// Health is how an inventory as a whole is doing. The zero value means that all is well.
type Health struct {
	// Reason is why the inventory cannot be read (fully) now; empty when it can.
	Reason Reason
	// Message explains the reason to a person, without secrets.
	Message string
}

// Info is what an inventory tells about a cluster besides how it is reached. Receivers must treat the maps
// as read-only: they are shared.
type Info struct {
	// DisplayName is the cluster's name for people; empty if the inventory has none.
	DisplayName string
	// Manager names who manages the cluster's entry: a ClusterProfile's cluster manager, "cluster-api", …
	Manager string
	// KubernetesVersion is the version that the inventory states, e.g. "v1.36.3". The version that the
	// cluster itself reports is part of its status.
	KubernetesVersion string
	// Labels and Annotations are those of the inventory object. A Secret's annotations are left out: some tools keep
	// copies of its data in them.
	Labels      map[string]string
	Annotations map[string]string
	// Properties are the inventory's further facts, such as a ClusterProfile's properties (KEP-2149).
	Properties map[string]string
}

// Equal reports whether both say the same in every field.
func (i Info) Equal(o Info) bool {
	return i.DisplayName == o.DisplayName && i.Manager == o.Manager && i.KubernetesVersion == o.KubernetesVersion &&
		maps.Equal(i.Labels, o.Labels) && maps.Equal(i.Annotations, o.Annotations) && maps.Equal(i.Properties, o.Properties)
}

// Identity tells which physical cluster it is. Fields are empty where unknown; an empty field never equals another.
type Identity struct {
	// UID is the UID of the cluster's kube-system namespace.
	UID string
	// MemberID is the value of the label multicluster.x-k8s.io/inventory-member-id (KEP-4322): equal within one hub
	// means the same cluster.
	MemberID string
	// ClusterID is the property cluster.clusterset.k8s.io (KEP-2149), unique within ClusterSet.
	ClusterID string
	// ClusterSet is the property clusterset.k8s.io, or the clusterset label.
	ClusterSet string
}

// ObjectReference names the hub object or file that lists a cluster.
type ObjectReference struct {
	// APIVersion, Kind, Namespace, Name and UID identify a hub object. For a file they are empty.
	APIVersion, Kind, Namespace, Name, UID string
	// File is the path of a kubeconfig file; empty for a hub object.
	File string
}

// String returns "Kind namespace/name", or the file's path.
func (r ObjectReference) String() string {
	if r.File != "" {
		return r.File
	}
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	if r.Kind == "" {
		return name
	}
	return r.Kind + " " + name
}
