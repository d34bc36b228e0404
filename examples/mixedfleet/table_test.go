package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// exampleTable has one cluster of each sort.
func exampleTable() table {
	return table{
		rows: []row{
			{name: "capi/infra/osaka", backend: "capi", state: backends.Engaged, reason: backends.ReasonReady, version: "v1.36.3",
				objects: 12, objectAt: now.Add(-2 * time.Second), stateChangedAt: now.Add(-time.Hour)},
			{name: "inventory/fleet/berlin", backend: "inventory", state: backends.Disconnected, reason: backends.ReasonTimeout,
				objects: 3, objectAt: now.Add(-time.Minute), stateChangedAt: now.Add(-90 * time.Millisecond)},
			{name: "kubeconfig/edge/unusable", backend: "kubeconfig", state: backends.Rejected, reason: backends.ReasonInvalidKubeconfig,
				stateChangedAt: now.Add(-3 * time.Minute)},
		},
		notes: []string{"backend capi: KindNotServed: the hub does not serve this kind"},
	}
}

func written(t table, s style) string {
	var b bytes.Buffer
	t.write(&b, now, s)
	return b.String()
}

func TestTableIsWritten(t *testing.T) {
	for _, test := range []struct {
		name  string
		style style
		want  string
	}{
		{"whole", style{}, `
NAME                      BACKEND     STATE                         VERSION  OBJECTS  LAST EVENT
capi/infra/osaka          capi        Engaged (Ready)               v1.36.3  12       object 2s ago
inventory/fleet/berlin    inventory   Disconnected (Timeout)        -        3        state just now
kubeconfig/edge/unusable  kubeconfig  Rejected (InvalidKubeconfig)  -        -        state 3m ago
backend capi: KindNotServed: the hub does not serve this kind
`},
		{"cut to the width", style{width: 44}, `
NAME                      BACKEND     STATE
capi/infra/osaka          capi        Engage
inventory/fleet/berlin    inventory   Discon
kubeconfig/edge/unusable  kubeconfig  Reject
backend capi: KindNotServed: the hub does no
`},
		{"what is engaged is left out first", style{maxRows: 2}, `
NAME                      BACKEND     STATE                         VERSION  OBJECTS  LAST EVENT
inventory/fleet/berlin    inventory   Disconnected (Timeout)        -        3        state just now
kubeconfig/edge/unusable  kubeconfig  Rejected (InvalidKubeconfig)  -        -        state 3m ago
and 1 more
backend capi: KindNotServed: the hub does not serve this kind
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, "\n"+written(exampleTable(), test.style)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Colour changes nothing but the colour.
func TestColouredTable(t *testing.T) {
	coloured := written(exampleTable(), style{colour: true, width: 44})
	if !strings.Contains(coloured, green+"Engage"+plain) {
		t.Errorf("what is engaged is not green:\n%s", coloured)
	}
	bare := strings.NewReplacer(plain, "", bold, "", red, "", green, "", yellow, "").Replace(coloured)
	if diff := cmp.Diff(written(exampleTable(), style{width: 44}), bare); diff != "" {
		t.Errorf("(-without +with colours):\n%s", diff)
	}
}

func TestWhatIsNew(t *testing.T) {
	earlier := exampleTable()
	later := exampleTable()
	later.rows[0].objects, later.rows[0].objectAt = 13, now // says nothing new
	later.rows[1].state, later.rows[1].reason = backends.Engaged, backends.ReasonReady
	later.rows = later.rows[:2]
	later.notes = nil

	want := `
NAME                    BACKEND    STATE            VERSION  OBJECTS  LAST EVENT
inventory/fleet/berlin  inventory  Engaged (Ready)  -        3        state just now
kubeconfig/edge/unusable is gone
`
	if diff := cmp.Diff(want, "\n"+written(later.since(earlier), style{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := written(later.since(later), style{}); got != "" {
		t.Errorf("news of nothing new:\n%s", got)
	}
}

// The document's shape is what other programs rely on.
func TestReport(t *testing.T) {
	r := report{
		Clusters: exampleTable().list()[:2],
		Steps:    []result{{Name: "engage", OK: true, Took: "1.5s"}, {Name: "react", Took: "30s", Error: "it did not"}},
	}
	var b bytes.Buffer
	if err := printJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	want := any(object{
		"clusters": []any{
			object{"name": "capi/infra/osaka", "backend": "capi", "state": "Engaged", "reason": "Ready", "version": "v1.36.3"},
			object{"name": "inventory/fleet/berlin", "backend": "inventory", "state": "Disconnected", "reason": "Timeout", "version": ""},
		},
		"steps": []any{
			object{"name": "engage", "ok": true, "took": "1.5s"},
			object{"name": "react", "ok": false, "took": "30s", "error": "it did not"},
		},
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
