package config

import (
	"cmp"
	"reflect"
	"slices"
)

// Difference is what has to be done for one configuration to become another. The zero value is nothing.
type Difference struct {
	// Remove are names of backends that are gone, or that come back under another prefix.
	Remove []string
	// Add are backends that are new, or are under another prefix than before.
	Add []Backend
	// Update are backends whose kind or options have changed. Clusters that they list before and after go on.
	Update []Backend
	// Arrange are the orders of precedence to establish in the end, sorted by prefix.
	Arrange []Arrangement
}

// Arrangement is the order of precedence of the backends under a prefix, the first one first.
type Arrangement struct {
	Prefix string
	Names  []string
}

// Empty reports whether there is nothing to do.
func (d Difference) Empty() bool {
	return len(d.Remove) == 0 && len(d.Add) == 0 && len(d.Update) == 0 && len(d.Arrange) == 0
}

// Compare returns what makes the fleet to of the fleet from, which may be empty. Both have been checked by [Parse]. Files
// that they refer to are not looked at: their backends follow those by themselves, but a hub's kubeconfig is read once.
func Compare(from, to *Fleet) Difference {
	var d Difference
	old := map[string]Backend{}
	for _, b := range from.Backends {
		old[b.Name] = b
	}
	order := map[string][]string{} // by prefix, as it comes to be without being arranged
	kept := map[string]bool{}
	for _, b := range to.Backends {
		before, was := old[b.Name]
		switch {
		case was && before.prefix() == b.prefix():
			kept[b.Name] = true
			if !sameBackend(before, b) {
				d.Update = append(d.Update, b)
			}
		default:
			d.Add = append(d.Add, b)
		}
	}
	for _, b := range from.Backends {
		if kept[b.Name] {
			order[b.prefix()] = append(order[b.prefix()], b.Name)
		} else {
			d.Remove = append(d.Remove, b.Name)
		}
	}
	for _, b := range d.Add {
		order[b.prefix()] = append(order[b.prefix()], b.Name)
	}
	wanted := map[string][]string{}
	for _, b := range to.Backends {
		wanted[b.prefix()] = append(wanted[b.prefix()], b.Name)
	}
	for prefix, names := range wanted {
		if !slices.Equal(names, order[prefix]) {
			d.Arrange = append(d.Arrange, Arrangement{Prefix: prefix, Names: names})
		}
	}
	slices.SortFunc(d.Arrange, func(a, b Arrangement) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return d
}

// sameBackend compares what is left of two backends of one name and prefix.
func sameBackend(a, b Backend) bool {
	a.Prefix, b.Prefix = a.prefix(), b.prefix()
	return reflect.DeepEqual(a, b)
}
