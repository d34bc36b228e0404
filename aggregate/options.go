package aggregate

import (
	"cmp"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Options configure a Provider. The zero value works; every duration of zero means its default.
type Options struct {
	// Separator stands between prefix and member in a public name. Default "/"; "#" is the style of
	// multicluster-runtime's multi provider. It must not begin with a letter, a digit or a hyphen, or a
	// name could be read in two ways.
	Separator string

	// Scheme is the scheme of every cluster. Default: the manager's.
	Scheme *runtime.Scheme
	// ClusterOptions are applied to every cluster.Cluster, each time one is built: cache options, client options.
	// The HTTP client and the REST mapper are the engagement's own. Unless changed here, caches drop managedFields.
	ClusterOptions []cluster.Option

	// ConnectTimeout bounds one attempt to connect to a cluster. Default 10s.
	ConnectTimeout time.Duration
	// MaxFirstSyncs is how many clusters do their first LISTs at once. Default 256.
	MaxFirstSyncs int
	// MaxConnects is how many clusters are connected to at once, besides those that do not answer. Default 64.
	MaxConnects int
	// RetryBase and RetryMax bound the wait after a failed attempt, which is random (full jitter) between
	// nothing and RetryBase doubled per failure. Defaults 1s and 5m.
	RetryBase, RetryMax time.Duration
	// ProbeInterval is the time between two probes of an engaged cluster. Default 10s.
	ProbeInterval time.Duration
	// ProbeTimeout bounds one probe. Default 5s.
	ProbeTimeout time.Duration
	// ProbeFailures is how many probes in a row must fail for a cluster to be disengaged. Default 5.
	ProbeFailures int
	// ProofInterval is the time between two proofs of a backend's connection to a cluster that another backend serves.
	// Default 5m.
	ProofInterval time.Duration
	// FailBack is how long a backend that comes earlier in the order must have been well again, after a failure, before a
	// cluster moves back to it. Default 1m.
	FailBack time.Duration
	// HandoverTimeout is how long a cluster goes on that its backend no longer lists while another one does, and is not
	// ready to serve it. Default 1m.
	HandoverTimeout time.Duration
	// HeadStart is how long, after its start, a backend serves nothing new while one that comes before it under the same prefix has
	// not told what it lists. Default 10s.
	HeadStart time.Duration
	// ServeOnce has a cluster that is listed under several names served under one of them: the first in the order of
	// backends, and then of names, that is engaged. The others are Shadowed. By default all are served, and told to be duplicates.
	// Which cluster it is, is known by the UID of its namespace kube-system; where the user may not read that, it is not known.
	ServeOnce bool
	// ReadTimeout bounds a cached read that has to wait for its informer's first sync. Default 30s.
	ReadTimeout time.Duration
	// DrainTimeout bounds the wait for a disengaged cluster's goroutines before its connections are cut. Default 10s.
	DrainTimeout time.Duration
	// StopTimeout bounds how long Start takes to return after its context has ended. Default 5s.
	StopTimeout time.Duration

	// PluginTimeout bounds one run of a credential plugin; the plugin and all that it started are killed then. Default 15s.
	PluginTimeout time.Duration
	// MaxPlugins is how many credential plugins run at once. Default 8.
	MaxPlugins int
	// PluginEnvironment names the variables of this process' environment that credential plugins see, besides what
	// the connection says. Default: what programs need to find programs, files and their hub, such as PATH and HOME,
	// and nothing that is a credential.
	PluginEnvironment []string

	// Metrics is where the provider's metrics are registered. Providers may share a registry. Default:
	// controller-runtime's registry, which the manager's metrics server serves.
	Metrics prometheus.Registerer

	// Logger is told every change of state of a cluster or backend. Default: the manager's, or none.
	Logger logr.Logger
}

func (o Options) withDefaults() Options {
	o.Separator = cmp.Or(o.Separator, DefaultSeparator)
	if o.Metrics == nil {
		o.Metrics = metrics.Registry
	}
	o.StopTimeout = cmp.Or(o.StopTimeout, 5*time.Second)
	o.HeadStart = cmp.Or(o.HeadStart, 10*time.Second)
	return o
}

// BackendOptions are what a Provider is told about one of its backends.
type BackendOptions struct {
	// Events takes an Event for every change of a cluster's state, about the hub object that lists it: for instance
	// GetLocalManager().GetEventRecorder("tributary") of a manager whose own cluster is the backend's hub.
	// There are no more than 10 at once and one in a minute for each cluster. Nil: no Events.
	Events events.EventRecorder
	// Prefix is what the backend's members are published under: a DNS label (RFC 1123). Default: the backend's name.
	// Backends under one prefix are an overlay: a member that several of them list is served by the first of them in
	// order, and moves to the next one, caches and all, when that is no longer possible. See Provider.Arrange.
	Prefix string
	// Replace lets the backend take a name over even if it leads to another cluster than the one that is served under it, or
	// is not known to lead to the same: the name is disengaged then, and engaged anew. By default that is reported
	// (IdentityDiffers, IdentityUnknown), and nothing else happens as long as the other backend lists the name.
	Replace bool
	// Guard keeps clusters that vanish from the inventory in a mass.
	Guard GuardOptions
}
