package engagement

import (
	"time"

	"github.com/tributary-fleet/tributary/backends"
)

// Event is something that happened to one public name.
type Event interface{ event() }

type (
	// Declared: a source says that the cluster exists and how it is reached.
	Declared struct {
		Source  Source
		Cluster backends.Cluster
	}
	// Held: a source says that the cluster exists but is not to be engaged now.
	Held struct {
		Source Source
		Name   string // as Cluster.Name
		Hold   backends.Hold
	}
	// Withdrawn: a source no longer lists the cluster.
	Withdrawn struct {
		Source string
		Reason backends.Reason
	}
	// Ranked: a source's place in the order of precedence, or what it may do, is another now.
	Ranked struct {
		Source Source
	}
	// Claimed: other names lead to the same cluster, the one with this UID. First is the one that comes first in order,
	// unless that is this one; then Others is how many there are. Shadowed says that First serves the cluster instead
	// of this one: that holds until it is taken back, or what is known of this name's connections is another.
	Claimed struct {
		UID      string
		First    string
		Others   int
		Shadowed bool
	}
	// Led: engagements are handed to controllers from now on.
	Led struct{}
	// Connected: the attempt of this generation has proved its connection.
	Connected struct {
		Generation uint64
		Facts      Facts
		// SwapOnly is the engagement that the connection was prepared to be swapped under; 0 if it cannot be.
		SwapOnly uint64
		Jitter   float64 // in [0,1): spreads the probes of many clusters
	}
	// ConnectFailed: the attempt of this generation has failed.
	ConnectFailed struct {
		Generation uint64
		Failure    Failure
		Jitter     float64 // in [0,1): full jitter of the backoff
	}
	// EngageReturned: the engagement was handed to the controllers; Failure is set if one refused it.
	EngageReturned struct {
		Engagement uint64
		Failure    *Failure
		Jitter     float64
	}
	// Synced: every informer of the engagement has synced once.
	Synced struct {
		Engagement uint64
	}
	// Probed: a probe through the engagement's connection has ended. Failure is nil if the cluster answered.
	Probed struct {
		Engagement uint64
		Generation uint64
		Failure    *Failure
		UID        string // kube-system's UID where the probe read it
		Jitter     float64
	}
	// WatchesChanged: what is wrong with the engagement's watches is another now.
	WatchesChanged struct {
		Engagement uint64
		Failed     Failure // zero if no watch is refused
		Pending    string  // the kinds that the cluster does not serve, as a sentence; empty if there are none
		Order      uint64  // later news have a higher number
	}
	// Unauthorized: the cluster has answered 401 to a request over this generation.
	Unauthorized struct {
		Engagement uint64
		Generation uint64
	}
	// Stopped: the engagement's cluster ended by itself, which it never should.
	Stopped struct {
		Engagement uint64
		Failure    Failure
		Jitter     float64
	}
	// Drained: the disengaged engagement has come to its end.
	Drained struct {
		Engagement uint64
	}
	// Tick: time has passed.
	Tick struct{}
)

func (Declared) event()       {}
func (Held) event()           {}
func (Withdrawn) event()      {}
func (Ranked) event()         {}
func (Claimed) event()        {}
func (Led) event()            {}
func (Connected) event()      {}
func (ConnectFailed) event()  {}
func (EngageReturned) event() {}
func (Synced) event()         {}
func (Probed) event()         {}
func (WatchesChanged) event() {}
func (Unauthorized) event()   {}
func (Stopped) event()        {}
func (Drained) event()        {}
func (Tick) event()           {}

// Source is who declares a cluster: a backend, and its place in the order of precedence (lowest first).
type Source struct {
	Name string
	Rank int
	// Replace lets the source take a name over from one that leads to another cluster, or to one that is not known to
	// be the same.
	Replace bool
	// NotBefore keeps a name that nobody serves from being served by the source: one before it in the order may
	// list it too, and has not been heard yet.
	NotBefore time.Time
}

// Failure is why something failed, without secrets.
type Failure struct {
	Reason  backends.Reason
	Message string
}

// Facts are what a proved connection has told about the cluster.
type Facts struct {
	// UID is the kube-system namespace's UID; empty if the user may not read it.
	UID string
	// User is who the API server says the credential is; empty if it does not say.
	User string
	// Rights are the user's name, UID and groups in one string: who has the same, may do the same. Empty if unknown.
	Rights string
	// MayWatch says that the user may list and watch everything that the running engagement watches. It
	// matters only when Rights are not known to be the running engagement's.
	MayWatch bool
	// Version is the server's version, e.g. "v1.36.3".
	Version string
}

// Action is something the driver is to do. Carrying one out never blocks: it starts or cancels work.
type Action interface{ action() }

type (
	// Connect: start an attempt for this generation. Running is the engagement that it would take over, or 0, and
	// RunningLink what that runs upon. With SwapOnly, the connection is to be proved, and may then be swapped under
	// Running, but never be engaged: no cluster is built upon it.
	Connect struct {
		Generation  uint64
		Link        Link
		Running     uint64
		RunningLink Link
		SwapOnly    bool
	}
	// CancelConnect: end this attempt. A result that comes nevertheless is to be closed.
	CancelConnect struct {
		Generation uint64
	}
	// Discard: close the connection of this generation, which came too late.
	Discard struct {
		Generation uint64
	}
	// Engage: build a cluster upon the generation, serve it under the name, and hand it to the controllers.
	Engage struct {
		Engagement uint64
		Generation uint64
	}
	// Swap: put the generation under the running engagement.
	Swap struct {
		Engagement uint64
		Generation uint64
	}
	// Disengage: cancel the engagement, wait for its end, close its connections; then report Drained.
	Disengage struct {
		Engagement uint64
		Reason     backends.Reason
	}
	// Probe: ask the cluster, through the engagement's own connection, whether it is alive.
	Probe struct {
		Engagement uint64
		Generation uint64
	}
)

func (Connect) action()       {}
func (CancelConnect) action() {}
func (Discard) action()       {}
func (Engage) action()        {}
func (Swap) action()          {}
func (Disengage) action()     {}
func (Probe) action()         {}
