package aggregate

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// The filters' verdict changes exactly where one of the conditions, each registered once, would answer otherwise.
func TestFiltersVerdict(t *testing.T) {
	var f filters
	byLabel := func(key string) condition {
		return condition{"has " + key, func(_ multicluster.ClusterName, _ string, set labels.Set) bool { return set.Has(key) }}
	}
	byBackend := condition{"backend a", func(_ multicluster.ClusterName, backend string, _ labels.Set) bool { return backend == "a" }}
	panics := condition{"panics", func(multicluster.ClusterName, string, labels.Set) bool { panic("no labels, please") }}
	if v := f.verdict("x", "a", nil); v != "" {
		t.Errorf("verdict of no conditions: %q", v)
	}
	for range 3 {
		for _, c := range []condition{byLabel("prod"), byBackend, panics} {
			f.register(c)
		}
	}
	began := f.verdict("x", "a", labels.Set{"prod": ""})
	if began != "110" {
		t.Fatalf("verdict: %q, want 110", began)
	}
	for _, c := range []struct {
		name    string
		backend string
		set     labels.Set
		want    bool
	}{
		{"nothing changed", "a", labels.Set{"prod": ""}, true},
		{"a label that nobody selects by", "a", labels.Set{"prod": "", "heartbeat": "1"}, true},
		{"a label that somebody selects by", "a", labels.Set{}, false},
		{"no labels", "a", nil, false},
		{"another backend", "b", labels.Set{"prod": ""}, false},
	} {
		if got := began.stands(f.verdict("x", c.backend, c.set)); got != c.want {
			t.Errorf("%s: stands %v, want %v", c.name, got, c.want)
		}
	}

	f.register(byLabel("late"))
	if v := f.verdict("x", "a", labels.Set{"prod": "", "late": ""}); v != "1101" || !began.stands(v) {
		t.Errorf("a condition that came later: %q makes an earlier verdict fall", v)
	}
	if v := f.verdict("x", "a", labels.Set{"late": ""}); began.stands(v) {
		t.Errorf("beside a condition that came later: %q lets an earlier verdict stand", v)
	}
}
