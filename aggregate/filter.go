package aggregate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"
)

// FromBackend returns a filter for controllers that are to work only in the clusters that one of these backends serves:
//
//	mcbuilder.ControllerManagedBy(mgr).
//		For(&corev1.ConfigMap{}, mcbuilder.WithClusterFilter(fleet.FromBackend("capi", "files")))
//
// The option concerns the one For, Owns or Watches that it is given to. The backends may be added later. Where several
// backends list a cluster under one prefix, the one that serves it counts; View selects all clusters of a prefix. A name that no
// backend lists is not selected.
//
// When a cluster comes to be served by another backend, it is taken back from the controllers and handed to them anew, caches and all, so
// that each asks again.
func (p *Provider) FromBackend(names ...string) mcsource.ClusterFilterFunc {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	return p.filter(condition{fmt.Sprintf("backends %q", names), func(_ multicluster.ClusterName, backend string, _ labels.Set) bool {
		return slices.Contains(names, backend)
	}})
}

// WithLabels returns a filter for controllers that are to work only in the clusters whose labels in the inventory, those of
// backends.Info, match the selector:
//
//	prod := labels.SelectorFromSet(labels.Set{"env": "prod"})
//	mcbuilder.ControllerManagedBy(mgr).
//		For(&corev1.ConfigMap{}, mcbuilder.WithClusterFilter(fleet.WithLabels(prod)))
//
// The option concerns the one For, Owns or Watches that it is given to. The selector must be safe for concurrent use. A nil
// one selects nothing, and one that panics does not select the cluster. A name that no backend lists is not selected.
//
// When labels change so that a filter says something else of a cluster, the cluster is taken back from the controllers and handed
// to them anew, caches and all, so that each asks again. Nothing is listed for that; controllers that still have the cluster are
// called once more for each of its objects.
func (p *Provider) WithLabels(selector labels.Selector) mcsource.ClusterFilterFunc {
	if selector == nil {
		selector = labels.Nothing()
	}
	return p.filter(condition{fmt.Sprintf("labels %T %v", selector, selector), func(_ multicluster.ClusterName, _ string, set labels.Set) bool {
		return selector.Matches(set)
	}})
}

func (p *Provider) filter(c condition) mcsource.ClusterFilterFunc {
	p.filters.register(c)
	return func(name multicluster.ClusterName, _ cluster.Cluster) bool { return p.meets(name, c) }
}

// meets reports whether a cluster that a backend lists meets a condition now. It takes no lock.
func (p *Provider) meets(name multicluster.ClusterName, c condition) bool {
	s, ok := p.engine.StatusOf(name)
	return ok && c.holds(name, s.Source, s.Cluster.Info.Labels)
}

// condition says whether a cluster is selected: by its public name, the backend that serves it, and its labels in the
// inventory.
type condition struct {
	key     string // equal conditions have the same
	selects func(name multicluster.ClusterName, backend string, set labels.Set) bool
}

// holds asks the condition, which may run a user's code: one that panics does not hold.
func (c condition) holds(name multicluster.ClusterName, backend string, set labels.Set) (holds bool) {
	defer func() {
		if recover() != nil {
			holds = false
		}
	}()
	return c.selects(name, backend, set)
}

// filters are all conditions that controllers go by, in the order in which they came. The zero value is ready; it may be used
// concurrently.
type filters struct {
	mu         sync.Mutex
	conditions []condition // only ever appended to
}

// register adds a condition, unless an equal one is there.
func (f *filters) register(c condition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.conditions, func(o condition) bool { return o.key == c.key }) {
		f.conditions = append(f.conditions, c)
	}
}

// verdict asks every condition. It runs users' selectors, so it is not to be called under a lock.
func (f *filters) verdict(name multicluster.ClusterName, backend string, set labels.Set) verdict {
	f.mu.Lock()
	conditions := f.conditions
	f.mu.Unlock()
	var v strings.Builder
	for _, c := range conditions {
		if c.holds(name, backend, set) {
			v.WriteByte('1')
		} else {
			v.WriteByte('0')
		}
	}
	return verdict(v.String())
}

// verdict is what all conditions say of a cluster, a character each.
type verdict string

// stands reports whether a later verdict says the same, in so far as both know of the same conditions: one that was
// registered in between is not asked for the first time by this.
func (v verdict) stands(later verdict) bool { return strings.HasPrefix(string(later), string(v)) }

// noteVerdict takes note of what the filters say of a cluster that is about to be handed to controllers: they ask a moment later.
func (p *Provider) noteVerdict(name multicluster.ClusterName) {
	if v, ok := p.verdictOf(name); ok {
		p.verdicts.Store(name, v)
	}
}

func (p *Provider) verdictOf(name multicluster.ClusterName) (verdict, bool) {
	s, ok := p.engine.StatusOf(name)
	if !ok {
		return "", false
	}
	return p.filters.verdict(name, s.Source, s.Cluster.Info.Labels), true
}

// followVerdicts has each cluster handed to the controllers anew of which the filters come to say something else, until ctx ends.
func (p *Provider) followVerdicts(ctx context.Context) {
	for change := range p.Subscribe(ctx) {
		if change.Gone {
			p.verdicts.Delete(change.Name)
			continue
		}
		before, handedOver := p.verdicts.Load(change.Name)
		now, listed := p.verdictOf(change.Name)
		if !handedOver || !listed || before == now {
			continue
		}
		p.verdicts.Store(change.Name, now)
		if !before.(verdict).stands(now) {
			p.engine.HandOverAgain(change.Name)
		}
	}
}
