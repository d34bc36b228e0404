package inventory

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// clusterSetLabel is how KEP-2149 spells what the API's module calls LabelClusterSetKey.
const clusterSetLabel = "clusterset.multicluster.x-k8s.io"

// defaultGrace is how long a cluster stays a member by default after the scheduler's last word for it.
const defaultGrace = time.Minute

// Placement makes members of those ClusterProfiles only that a scheduler chose: that some PlacementDecision with the
// placement key names. A decision may consist of several objects, its slices, which are written one after the other;
// all of them count together, in whatever order they come. Decisions for ClusterProfiles that do not exist are ignored.
type Placement struct {
	// Key is the value of the label multicluster.x-k8s.io/placement-key. Required.
	Key string
	// Namespaces are where the PlacementDecisions are. Empty: those of Options.
	Namespaces []string
	// Grace is how long a cluster that is chosen no more stays engaged, since a scheduler that rewrites its slices takes
	// a cluster out of one before it puts it into another. Default: one minute.
	Grace time.Duration
}

func (p *Placement) validate() error {
	if p == nil {
		return nil
	}
	if p.Key == "" || p.Grace < 0 || slices.Contains(p.Namespaces, "") {
		return errors.New("option Placement has no key, a negative grace, or an empty namespace")
	}
	if _, err := labels.ValidatedSelectorFromSet(labels.Set{v1alpha1.PlacementKeyLabel: p.Key}); err != nil {
		return fmt.Errorf("option Placement: %w", err)
	}
	return nil
}

// selects reports whether the options select a profile by what it says of itself.
func (o Options) selects(p *profile) bool {
	if len(o.ClusterManagers) > 0 && !slices.Contains(o.ClusterManagers, p.info.Manager) {
		return false
	}
	return len(o.ClusterSets) == 0 || slices.Contains(o.ClusterSets, p.hints.ClusterSet)
}

// decision is what matters of a PlacementDecision.
type decision struct {
	chosen []string // members
}

func viewDecision(u *unstructured.Unstructured) (decision, bool) {
	var r reader
	var d decision
	for _, element := range r.objects(u.Object, "decisions") {
		reference := r.object(element, "clusterProfileRef")
		namespace, name := r.text(reference, "namespace"), r.text(reference, "name")
		if namespace == "" {
			namespace = u.GetNamespace()
		}
		d.chosen = append(d.chosen, namespace+"/"+name)
	}
	slices.Sort(d.chosen)
	d.chosen = slices.Compact(d.chosen)
	return d, true
}

// choices remembers what schedulers chose, from one run of a backend to the next.
type choices struct {
	before map[string]bool // members that were chosen and have not been given up
	absent patience
}

// placements finds out which members a scheduler chose.
type placements struct {
	source     *hub.Source[decision]
	namespaces []string
	choices    *choices
}

func newPlacements(opts Options, remembered *choices) *placements {
	p := &placements{choices: remembered, namespaces: opts.Placement.Namespaces}
	if len(p.namespaces) == 0 {
		p.namespaces = opts.Namespaces
	}
	p.source = hub.NewSource(hub.SourceOptions[decision]{
		Kind: hub.Kind{Group: v1alpha1.GroupVersion.Group, Resource: "placementdecisions",
			Versions: []string{v1alpha1.GroupVersion.Version}},
		Namespaces:    p.namespaces,
		LabelSelector: v1alpha1.PlacementKeyLabel + "=" + opts.Placement.Key,
		View:          viewDecision,
		Members:       func(d decision) []string { return d.chosen },
	})
	return p
}

// chosen reports whether a member counts as chosen now, and when to look again; or why that is not known.
func (p *placements) chosen(member string, now time.Time) (chosen bool, again time.Time, unknown *backends.Health) {
	if len(p.source.ForMember(member)) > 0 {
		p.choices.absent.has(member)
		p.choices.before[member] = true
		return true, time.Time{}, nil
	}
	if unlisted := p.source.Unlisted(); unlisted != nil {
		return false, time.Time{}, unlisted
	}
	if !p.choices.before[member] {
		return false, time.Time{}, nil
	}
	tooLong, again := p.choices.absent.lacks(member, now, p.trouble())
	if tooLong {
		p.forget(member)
	}
	return !tooLong, again, nil
}

// trouble reports whether some decisions cannot be read now.
func (p *placements) trouble() bool {
	if len(p.namespaces) == 0 {
		return p.source.Trouble("") != nil
	}
	return slices.ContainsFunc(p.namespaces, func(namespace string) bool { return p.source.Trouble(namespace) != nil })
}

func (p *placements) forget(member string) {
	delete(p.choices.before, member)
	p.choices.absent.has(member)
}
