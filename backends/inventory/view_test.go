package inventory

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
			p := newProfiles(Options{Consumer: "c"}, &engager)
			p.say(t.Context(), "fleet/prod", viewProfile(u))
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

// BenchmarkHeartbeat is what a heartbeat costs from the decoded object on.
func BenchmarkHeartbeat(b *testing.B) {
	for _, properties := range []int{5, 50} {
		b.Run(fmt.Sprintf("properties=%d", properties), func(b *testing.B) {
			u := object(properties)
			for b.Loop() {
				if viewProfile(u).unreadable {
					b.Fatal("unreadable")
				}
			}
		})
	}
}
