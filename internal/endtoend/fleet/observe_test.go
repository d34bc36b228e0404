package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// Changes of state are Events on the object that lists the cluster.
func TestEvents(t *testing.T) {
	hub := planes.Get(t, controlplane.Options{Name: "one"})
	server := endtoend.Fakes(t)
	fake := server.Cluster("c")
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithHub(hub))
	inv := endtoend.NewInventory()
	if err := f.Add("x", inv, aggregate.BackendOptions{Events: f.Manager.GetLocalManager().GetEventRecorder("tributary")}); err != nil {
		t.Fatal(err)
	}
	<-inv.Running

	c, err := client.New(hub.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: endtoend.Unique("listed")}}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	source := backends.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name, UID: string(secret.UID)}
	inv.Say().Hold("c", backends.Hold{Reason: backends.ReasonInvalidKubeconfig, Rejected: true, Message: "it is broken", Source: source})
	events := func() (found []string) {
		var list eventsv1.EventList
		if err := c.List(t.Context(), &list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Regarding.UID == secret.UID {
				found = append(found, fmt.Sprintf("%s %s %s: %s", e.Type, e.Reason, e.Action, e.Note))
			}
		}
		return found
	}
	has := func(event string) func() bool {
		return func() bool { return strings.Contains(strings.Join(events(), "\n"), event) }
	}
	endtoend.Eventually(t, "the refusal is an Event", has("Warning InvalidKubeconfig Rejected: cluster x/c is Rejected: it is broken"))
	cluster := endtoend.FakeMember(fake, server.Addr(), server, "c", "token")
	cluster.Source = source
	inv.Say().Engage(cluster)
	endtoend.Eventually(t, "the engagement is an Event", has("Normal Ready Engaged: cluster x/c is Engaged"))
	for range 100 { // heartbeats
		inv.Say().Engage(cluster)
	}
	if found := events(); len(found) > 5 {
		t.Errorf("too many Events:\n%s", strings.Join(found, "\n"))
	}
}

// Metrics tell how many clusters are in which state, and forget those that are gone.
func TestMetrics(t *testing.T) {
	server := endtoend.Fakes(t)
	registry := prometheus.NewRegistry()
	f := endtoend.Start(t, aggregate.Options{Metrics: registry})
	inv := f.Declare(t, "x")
	metrics := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			for _, m := range family.Metric {
				labels := make([]string, 0, len(m.Label))
				for _, l := range m.Label {
					labels = append(labels, l.GetValue())
				}
				values[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = valueOf(m)
			}
		}
		return values
	}
	for _, name := range []string{"a", "b"} {
		inv.Say().Engage(endtoend.FakeMember(server.Cluster(name), server.Addr(), server, name, "token"))
	}
	inv.Say().Hold("held", backends.Hold{Reason: backends.ReasonPaused})
	endtoend.Eventually(t, "two engaged, one pending", func() bool {
		m := metrics()
		return m["tributary_clusters{x,Engaged}"] == 2 && m["tributary_clusters{x,Pending}"] == 1 && m["tributary_first_sync_duration_seconds{x}"] == 2
	})
	m := metrics()
	if m["tributary_connect_duration_seconds{x,ok}"] != 2 || m["tributary_last_contact_timestamp_seconds{x/a}"] == 0 {
		t.Errorf("metrics: %v", m)
	}
	inv.Say().Engage(endtoend.FakeMember(server.Cluster("b"), server.Addr(), server, "a", "token"))
	endtoend.Eventually(t, "replaced", func() bool { return metrics()["tributary_replaces_total{x}"] == 1 })
	inv.Say().Engage(endtoend.FakeMember(server.Cluster("b"), server.Addr(), server, "b", "another"))
	endtoend.Eventually(t, "swapped", func() bool { return metrics()["tributary_swaps_total{x}"] == 1 })
	for _, name := range []string{"a", "b", "held"} {
		inv.Say().Disengage(name, backends.ReasonDeleted)
	}
	endtoend.Eventually(t, "gone", func() bool { return len(f.Clusters()) == 0 })
	left := map[string]float64{}
	for key, value := range metrics() {
		if strings.HasPrefix(key, "tributary_clusters") && value != 0 || strings.Contains(key, "x/") {
			left[key] = value
		}
	}
	if diff := cmp.Diff(map[string]float64{}, left); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

// valueOf returns a gauge's or counter's value, or how often a histogram has observed.
func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	case m.Counter != nil:
		return m.Counter.GetValue()
	default:
		return m.Gauge.GetValue()
	}
}
