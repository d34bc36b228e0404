package backends

import (
	"errors"
	"fmt"
)

// State is where the engagement of a listed cluster stands.
type State string

const (
	// Pending: the inventory lists the cluster but holds it back; the reason says why.
	Pending State = "Pending"
	// Connecting: a first connection is being made, or is waited for after a failed attempt.
	Connecting State = "Connecting"
	// Engaged: controllers work in the cluster, and its probes succeed.
	Engaged State = "Engaged"
	// Degraded: engaged, but something about it is wrong: probes fail, below the threshold, or a new
	// credential does not work. Controllers keep working.
	Degraded State = "Degraded"
	// Disconnected: it was engaged and was lost; it is being reconnected to.
	Disconnected State = "Disconnected"
	// Rejected: policy refuses the cluster, or its data is unusable. Somebody has to change something.
	Rejected State = "Rejected"
	// Shadowed: another backend, or another name, serves this cluster.
	Shadowed State = "Shadowed"
	// Draining: disengaged; its goroutines and connections are coming to their end.
	Draining State = "Draining"
)

// Reason is a stable word for why a cluster or a backend is in its state. People alert on it.
type Reason string

// Reasons of inventories.
const (
	// ReasonNotReady: the inventory object says that the cluster is not ready yet.
	ReasonNotReady Reason = "NotReady"
	// ReasonControlPlaneUnhealthy: a ClusterProfile's ControlPlaneHealthy condition is not True.
	ReasonControlPlaneUnhealthy Reason = "ControlPlaneUnhealthy"
	// ReasonControlPlaneNotInitialized: a Cluster API Cluster's control plane is not initialized.
	ReasonControlPlaneNotInitialized Reason = "ControlPlaneNotInitialized"
	// ReasonPaused: the object is paused, so no new engagement is started.
	ReasonPaused Reason = "Paused"
	// ReasonNoAccess: the object does not (yet) say how its cluster is reached.
	ReasonNoAccess Reason = "NoAccess"
	// ReasonNoAccessProvider: a ClusterProfile lists no access provider.
	ReasonNoAccessProvider Reason = "NoAccessProvider"
	// ReasonNoMatchingProvider: a ClusterProfile lists access providers, but none that is configured here.
	ReasonNoMatchingProvider Reason = "NoMatchingProvider"
	// ReasonInvalidAccess: the access data of the object cannot be used.
	ReasonInvalidAccess Reason = "InvalidAccess"
	// ReasonMoving: the Cluster API Cluster is being moved to another management cluster by clusterctl.
	ReasonMoving Reason = "Moving"
	// ReasonSecretNotFound: the Secret that holds the connection does not exist (yet).
	ReasonSecretNotFound Reason = "SecretNotFound"
	// ReasonKeyNotFound: the Secret lacks the key that holds the connection, or it is empty.
	ReasonKeyNotFound Reason = "KeyNotFound"
	// ReasonInvalidKubeconfig: the kubeconfig cannot be used; the message says which field.
	ReasonInvalidKubeconfig Reason = "InvalidKubeconfig"
	// ReasonPolicyViolation: the backend's policy refuses the connection; the message names field and rule.
	ReasonPolicyViolation Reason = "PolicyViolation"
	// ReasonNameConflict: an older object has this member's name already.
	ReasonNameConflict Reason = "NameConflict"
	// ReasonDeleted: the object was deleted.
	ReasonDeleted Reason = "Deleted"
	// ReasonDeselected: the object no longer matches the backend's selection.
	ReasonDeselected Reason = "Deselected"
	// ReasonNotListed: the inventory no longer lists a cluster that it listed before a restart.
	ReasonNotListed Reason = "NotListed"
)

// Reasons of the health of an inventory.
const (
	// ReasonStarting: the inventory is being read for the first time.
	ReasonStarting Reason = "Starting"
	// ReasonKindNotServed: the hub does not serve the inventory's kind: its CRD is missing.
	ReasonKindNotServed Reason = "KindNotServed"
	// ReasonHubForbidden: the hub forbids reading what the inventory needs.
	ReasonHubForbidden Reason = "HubForbidden"
	// ReasonHubUnreachable: the hub does not answer.
	ReasonHubUnreachable Reason = "HubUnreachable"
	// ReasonFilesUnreadable: a file of the inventory, or its folder, is missing or cannot be read.
	ReasonFilesUnreadable Reason = "FilesUnreadable"
	// ReasonProviderFileInvalid: the file of access providers cannot be read or used; the last good one stays in force.
	ReasonProviderFileInvalid Reason = "ProviderFileInvalid"
	// ReasonBackendFailed: Run returned an error; it is started again with backoff.
	ReasonBackendFailed Reason = "BackendFailed"
)

// Reasons of engagements.
const (
	// ReasonConnecting: an attempt to connect is running or waits for its turn.
	ReasonConnecting Reason = "Connecting"
	// ReasonSyncing: engaged, but informers have not synced yet.
	ReasonSyncing Reason = "Syncing"
	// ReasonStandby: connected and healthy; controllers get the cluster as soon as this process is the leader.
	ReasonStandby Reason = "Standby"
	// ReasonReady: engaged and healthy.
	ReasonReady Reason = "Ready"
	// ReasonUnreachable: no connection could be made to the cluster's address.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonTimeout: the cluster accepted a connection but did not answer in time.
	ReasonTimeout Reason = "Timeout"
	// ReasonTLSFailed: the TLS handshake failed, for instance for an unknown authority.
	ReasonTLSFailed Reason = "TLSFailed"
	// ReasonUnauthorized: the cluster answered 401 to the credential.
	ReasonUnauthorized Reason = "Unauthorized"
	// ReasonForbidden: the cluster answered 403 to something that an engagement needs.
	ReasonForbidden Reason = "Forbidden"
	// ReasonServerError: the cluster answered with a server error.
	ReasonServerError Reason = "ServerError"
	// ReasonInvalidResponse: what answered is not a Kubernetes API server.
	ReasonInvalidResponse Reason = "InvalidResponse"
	// ReasonPluginFailed: the credential plugin failed.
	ReasonPluginFailed Reason = "PluginFailed"
	// ReasonCredentialRejected: a new credential does not work; the old one stays in force.
	ReasonCredentialRejected Reason = "CredentialRejected"
	// ReasonConnectionRejected: a new endpoint does not work; the old one stays in force.
	ReasonConnectionRejected Reason = "ConnectionRejected"
	// ReasonWatchRefused: the cluster refuses to let a kind be watched; other kinds are not affected.
	ReasonWatchRefused Reason = "WatchRefused"
	// ReasonProbeFailed: health probes fail.
	ReasonProbeFailed Reason = "ProbeFailed"
	// ReasonEngageFailed: a controller refused the cluster, or failed while it was engaged.
	ReasonEngageFailed Reason = "EngageFailed"
	// ReasonReplaced: another cluster took over the name.
	ReasonReplaced Reason = "Replaced"
	// ReasonServedByOther: another backend of the overlay serves the name; this one could take over without a relist.
	ReasonServedByOther Reason = "ServedByOther"
	// ReasonNotProved: a candidate of an overlay was not connected to yet.
	ReasonNotProved Reason = "NotProved"
	// ReasonIdentityDiffers: a candidate of an overlay leads to another cluster than the one that the name stands for.
	ReasonIdentityDiffers Reason = "IdentityDiffers"
	// ReasonIdentityUnknown: a candidate of an overlay is not known to lead to the cluster that the name stands for.
	ReasonIdentityUnknown Reason = "IdentityUnknown"
	// ReasonInsufficientRights: a candidate of an overlay may not list and watch what is being watched.
	ReasonInsufficientRights Reason = "InsufficientRights"
	// ReasonRunElsewhere: another provider runs the cluster, so the name cannot move to it or away from it without being
	// engaged anew.
	ReasonRunElsewhere Reason = "RunElsewhere"
	// ReasonDuplicate: another name leads to the same cluster.
	ReasonDuplicate Reason = "Duplicate"
	// ReasonVanished: the cluster left its inventory together with many others; it is kept for a while.
	ReasonVanished Reason = "Vanished"
	// ReasonBackendRemoved: the backend was removed from the fleet.
	ReasonBackendRemoved Reason = "BackendRemoved"
	// ReasonStopped: the provider is stopping.
	ReasonStopped Reason = "Stopped"
)

// ErrNotEngaged says that a cluster is known but not engaged (now). It is deliberately not
// multicluster.ErrClusterNotFound, which controllers take as the cluster's end: work for a cluster that is
// away for a while is to be retried, not dropped. The error returned is a *[NotEngagedError].
var ErrNotEngaged = errors.New("cluster not engaged")

// NotEngagedError is the error for a cluster that is known but not engaged. It matches [ErrNotEngaged].
type NotEngagedError struct {
	Name    string // the public name
	State   State
	Reason  Reason
	Message string // for people, without secrets
}

// Error says which cluster is not engaged, and why.
func (e *NotEngagedError) Error() string {
	s := fmt.Sprintf("cluster %q not engaged: %s (%s)", e.Name, e.State, e.Reason)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Is makes errors.Is(err, ErrNotEngaged) true.
func (e *NotEngagedError) Is(target error) bool { return target == ErrNotEngaged }
