package engagement

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/internal/transport"
)

// Options configure an Engine. The zero value works.
type Options struct {
	// Timing is what the machines go by.
	Timing Timing
	// ConnectTimeout bounds one attempt to connect, from its first packet on. Default 10s.
	ConnectTimeout time.Duration
	// MaxFirstSyncs is how many clusters do their first LISTs at once; further ones wait to be engaged. One that
	// does not sync within FirstSyncTimeout gives its place up. Defaults 256 and 15s.
	MaxFirstSyncs    int
	FirstSyncTimeout time.Duration
	// MaxConnects is how many attempts run at once; further ones wait for their turn. An attempt that waits for a
	// cluster's first answer for long counts as running no more. Default 64.
	MaxConnects int
	// ProbeTimeout bounds one probe. Default 5s.
	ProbeTimeout time.Duration
	// ReadTimeout bounds a cached read that waits for its informer's first sync. Default 30s.
	ReadTimeout time.Duration
	// DrainTimeout bounds the wait for a disengaged cluster's goroutines. Default 10s.
	DrainTimeout time.Duration

	// ServeOnce has a cluster served under one name only, of several that lead to it: the first in order.
	ServeOnce bool

	// Scheme is the scheme of every cluster. Default: the one given to Start, or client-go's.
	Scheme *runtime.Scheme
	// ClusterOptions are applied to every cluster.Cluster that is built, after the engine's own defaults
	// and before what the engine cannot do without: its HTTP client, its REST mapper and its cache wrapper.
	ClusterOptions []cluster.Option
	// Transport configures the round trippers. Its OnUnauthorized and Exec are the engine's own.
	Transport transport.Options
	// PluginTimeout, MaxPlugins and PluginEnvironment are how credential plugins are run; see execplugin.Options.
	PluginTimeout     time.Duration
	MaxPlugins        int
	PluginEnvironment []string

	// Metrics are kept where they are set.
	Metrics *Metrics

	// OnHandOver is told of a cluster right before controllers are engaged with it.
	OnHandOver func(name multicluster.ClusterName)
	// OnChange is told each new Status of a name, and ok false when the name is forgotten. It is called
	// in order, under the engine's mutex: it must only take note.
	OnChange func(name string, status Status, ok bool)
}

func (o Options) withDefaults() Options {
	o.Timing = o.Timing.withDefaults()
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 10*time.Second)
	o.MaxConnects = cmp.Or(o.MaxConnects, 64)
	o.MaxFirstSyncs = cmp.Or(o.MaxFirstSyncs, 256)
	o.FirstSyncTimeout = cmp.Or(o.FirstSyncTimeout, 15*time.Second)
	o.ProbeTimeout = cmp.Or(o.ProbeTimeout, 5*time.Second)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 30*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 10*time.Second)
	if o.OnHandOver == nil {
		o.OnHandOver = func(multicluster.ClusterName) {}
	}
	if o.OnChange == nil {
		o.OnChange = func(string, Status, bool) {}
	}
	return o
}
