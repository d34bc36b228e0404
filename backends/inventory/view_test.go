package inventory

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends"
)

// object returns a ClusterProfile as a large inventory writes it.
func object(properties int) *unstructured.Unstructured {
	list := make([]any, properties)
	for i := range list {
		list[i] = map[string]any{
			"name": fmt.Sprintf("property-%d.example.com", i), "value": "value", "lastObservedTime": "2026-01-01T00:00:00Z"}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
		"metadata": map[string]any{"namespace": "fleet", "name": "prod", "labels": map[string]any{"env": "prod"}},
		"spec":     map[string]any{"clusterManager": map[string]any{"name": "test"}},
		"status": map[string]any{
			"properties": list,
			"version":    map[string]any{"kubernetes": "v1.36.3"},
			"conditions": []any{map[string]any{
				"type": "ControlPlaneHealthy", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
		},
	}}
}

// An object of another form than its version has is that object's problem, and is not quoted.
func TestUnreadableObjects(t *testing.T) {
	const credential = "CREDENTIAL"
	tests := map[string]func(u *unstructured.Unstructured) error{
		"an element of another type": func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedSlice(u.Object, []any{map[string]any{"name": []any{credential}}}, "status", "accessProviders")
		},
		"a property that is none": func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedSlice(u.Object, []any{credential}, "status", "properties")
		},
		"a list is a string": func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, credential, "status", "accessProviders")
		},
		"a string is a map": func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, map[string]any{credential: "x"}, "spec", "displayName")
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			u := object(0)
			if err := spoil(u); err != nil {
				t.Fatal(err)
			}
			var engager holds
			opts := Options{Providers: []access.Provider{{Name: "p"}}}
			p := newProfiles(opts, newMemory(opts), &engager)
			view := viewProfile(u, opts.Readiness.conditions())
			p.say(t.Context(), "fleet/prod", &view, time.Now())
			if len(engager.held) != 1 || engager.held[0].Reason != backends.ReasonInvalidAccess || !engager.held[0].Rejected {
				t.Fatalf("held as %+v, want rejected for InvalidAccess", engager.held)
			}
			if text := fmt.Sprintf("%+v", engager.held); strings.Contains(text, credential) {
				t.Errorf("the hold quotes the object: %s", text)
			}
		})
	}
}

// holds is an Engager that only remembers holds.
type holds struct {
	backends.Engager
	held []backends.Hold
}

func (h *holds) Hold(_ string, hold backends.Hold) { h.held = append(h.held, hold) }

// BenchmarkHeartbeat is what an update of an engaged profile costs after the wire's decoding, which is measured beside
// it: nothing is new in a heartbeat, and a label flip reaches the engager without a word about access being parsed.
func BenchmarkHeartbeat(b *testing.B) {
	for _, properties := range []int{5, 50} {
		u := object(properties)
		offer := map[string]any{"name": "p", "cluster": map[string]any{
			"server":     "https://proxy.example.com:9092/prod",
			"extensions": []any{map[string]any{"name": "client.authentication.k8s.io/exec", "extension": map[string]any{"clusterName": "prod"}}},
		}}
		if err := unstructured.SetNestedSlice(u.Object, []any{offer}, "status", "accessProviders"); err != nil {
			b.Fatal(err)
		}
		wire, err := u.MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		var engager engagements
		opts := Options{Providers: []access.Provider{{Name: "p", ExecConfig: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "/plugin"}}}}
		p, conditions := newProfiles(opts, newMemory(opts), &engager), opts.Readiness.conditions()
		known, now := viewProfile(u, conditions), time.Now()
		p.say(b.Context(), "fleet/prod", &known, now)
		if engager.count != 1 {
			b.Fatal("the profile is not engaged")
		}
		b.Run(fmt.Sprintf("decode/properties=%d", properties), func(b *testing.B) {
			for b.Loop() {
				if err := new(unstructured.Unstructured).UnmarshalJSON(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("status/properties=%d", properties), func(b *testing.B) {
			beat := u.DeepCopy()
			condition := beat.Object["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)
			condition["lastTransitionTime"] = "2026-01-01T00:03:00Z"
			for b.Loop() {
				if !reflect.DeepEqual(known, viewProfile(beat, conditions)) { // as the hub's store does
					b.Fatal("a heartbeat has news")
				}
			}
		})
		b.Run(fmt.Sprintf("label/properties=%d", properties), func(b *testing.B) {
			flip := u.DeepCopy()
			flip.SetLabels(map[string]string{"env": "prod", "heartbeat": "1"})
			for b.Loop() {
				view := viewProfile(flip, conditions)
				if reflect.DeepEqual(known, view) {
					b.Fatal("a label makes no difference")
				}
				p.say(b.Context(), "fleet/prod", &view, now)
			}
		})
	}
}

// engagements is an Engager that counts.
type engagements struct {
	backends.Engager
	count int
}

func (e *engagements) Engage(backends.Cluster)    { e.count++ }
func (e *engagements) Hold(string, backends.Hold) {}
