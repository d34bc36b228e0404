package aggregate

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/tributary-fleet/tributary/backends"
)

const (
	// defaultReadyBound is how long a fleet that is not ready is waited for unless another bound is given.
	defaultReadyBound = 2 * time.Minute
	// namedClusters is how many of the clusters that are waited for an error names.
	namedClusters = 3
)

// ReadyCheck returns a check for /readyz:
//
//	err := mgr.AddReadyzCheck("fleet", fleet.ReadyCheck(0))
//
// It turns ready when every backend has told once what it lists, and every cluster that can be reached is engaged and has
// synced; or bound (default 2m) after it was first asked of a running provider, so that a hub that is down does not keep a
// process from being ready for ever. Clusters do not count whose first attempt to connect has failed, which are
// lost, or which wait for something (Pending, Rejected, Shadowed, Draining). Before the provider runs it is not ready: under
// leader election that is before the process leads, unless it runs with Standby; then a cluster need only be connected.
// Once ready, it stays so, and costs nothing any longer.
//
// The error says in one line what is being waited for. The check may be called concurrently.
func (p *Provider) ReadyCheck(bound time.Duration) healthz.Checker {
	if bound <= 0 {
		bound = defaultReadyBound
	}
	r := &readiness{p: p, bound: bound}
	return func(*http.Request) error { return r.check() }
}

// readiness is what a check for /readyz remembers.
type readiness struct {
	p     *Provider
	bound time.Duration

	mu    sync.Mutex
	ready bool      // for ever
	since time.Time // when the provider was first seen to run
}

func (r *readiness) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready {
		return nil
	}
	runs, unsynced := r.p.unsynced()
	if !runs {
		return errors.New("fleet not ready: the provider does not run")
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	if time.Since(r.since) < r.bound {
		// After the backends: what one lists is known by the time it is synced.
		if err := notReady(unsynced, r.p.Clusters()); err != nil {
			return err
		}
	}
	r.ready = true
	return nil
}

// unsynced reports whether the provider runs, and returns the backends that have not told what they list, in order.
func (p *Provider) unsynced() (runs bool, list []BackendStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.inOrder() {
		if s.removed == nil && !s.hasSynced() {
			list = append(list, s.status())
		}
	}
	return p.session != nil, list
}

// notReady returns an error that says what is waited for, or nil.
func notReady(unsynced []BackendStatus, clusters []ClusterStatus) error {
	var waits []string
	if len(unsynced) > 0 {
		waits = append(waits, "backends "+backendNames(unsynced))
	}
	var names []string
	count := 0
	for _, c := range clusters {
		if !c.awaited() {
			continue
		}
		if count++; count <= namedClusters {
			names = append(names, strconv.Quote(c.Name.String()))
		}
	}
	if count > 0 {
		if count > namedClusters {
			names = append(names, "…")
		}
		waits = append(waits, fmt.Sprintf("clusters (%d): %s", count, strings.Join(names, ", ")))
	}
	if len(waits) == 0 {
		return nil
	}
	return errors.New("fleet not ready: waiting for " + strings.Join(waits, " and "))
}

// backendNames joins the backends' names, each with the reason if it has trouble.
func backendNames(list []BackendStatus) string {
	names := make([]string, 0, len(list))
	for _, b := range list {
		name := b.Name
		if r := b.Health.Reason; r != "" && r != backends.ReasonStarting {
			name += fmt.Sprintf(" (%q)", r)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// awaited reports whether a fleet that starts is to wait for the cluster: it is being connected to for the first time, or
// its informers have not synced.
func (c ClusterStatus) awaited() bool {
	switch c.State {
	case backends.Connecting:
		return c.Attempt == 0
	case backends.Engaged:
		return c.Reason == backends.ReasonSyncing
	default:
		return false
	}
}
