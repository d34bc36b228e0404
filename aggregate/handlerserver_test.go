package aggregate_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
)

// serveMetrics runs a metrics server with the provider's status on it, and returns the status' URL.
func serveMetrics(t *testing.T, p *aggregate.Provider) string {
	t.Helper()
	server, err := metricsserver.NewServer(metricsserver.Options{
		BindAddress: "127.0.0.1:0", ExtraHandlers: map[string]http.Handler{"/fleet": p.StatusHandler()},
	}, endtoend.Hubless, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	bound := server.(interface{ GetBindAddr() string })
	endtoend.Eventually(t, "the server listens", func() bool { return bound.GetBindAddr() != "" })
	return "http://" + bound.GetBindAddr() + "/fleet"
}

// The manager's metrics server shows the fleet as it is, before it runs and while it does, and nothing secret.
func TestStatusOnMetricsServer(t *testing.T) {
	idle, err := aggregate.New(aggregate.Options{Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.Add("x", endtoend.NewInventory(), aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	fakes := endtoend.Fakes(t)
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithoutController())
	inv := f.Declare(t, "x")
	member := endtoend.FakeMember(fakes.Cluster("c"), fakes.Addr(), fakes, "c", "a-token-of-the-fleet")
	member.Info.Annotations = map[string]string{"copy": "a-token-of-the-fleet"}
	inv.Say().Engage(member)
	inv.Say().Hold("held", backends.Hold{Reason: backends.ReasonInvalidKubeconfig, Rejected: true, Message: "<script>held</script>"})
	inv.Say().Synced()
	endtoend.Eventually(t, "engaged", func() bool { return f.Engaged("x/c") })

	var transport http.Transport
	t.Cleanup(transport.CloseIdleConnections)
	get := func(url string) []byte {
		resp, err := (&http.Client{Transport: &transport}).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("get %s: %s, %v", url, resp.Status, err)
		}
		if strings.Contains(string(body), "a-token-of-the-fleet") || strings.Contains(string(body), "<script") {
			t.Errorf("%s shows what it must not:\n%s", url, body)
		}
		return body
	}
	type cluster struct {
		Name, State, Reason, Version string
	}
	type document struct {
		Backends []struct {
			Name   string
			Health *struct{ Reason string }
			Synced bool
		}
		Clusters []cluster
	}
	read := func(url string) (d document) {
		if err := json.Unmarshal(get(url), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := read(serveMetrics(t, idle)); len(d.Backends) != 1 || d.Backends[0].Health.Reason != "Starting" || d.Clusters == nil || len(d.Clusters) != 0 {
		t.Errorf("before it runs: %+v", d)
	}
	url := serveMetrics(t, f.Provider)
	d := read(url)
	if len(d.Backends) != 1 || d.Backends[0].Health != nil || !d.Backends[0].Synced {
		t.Errorf("backends: %+v", d.Backends)
	}
	want := []cluster{{"x/c", "Engaged", "Ready", f.Status("x/c").Version}, {"x/held", "Rejected", "InvalidKubeconfig", ""}}
	if diff := cmp.Diff(want, d.Clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	if page := string(get(url + "?format=html&backend=x")); !strings.Contains(page, "<td>x/c</td>") || !strings.Contains(page, "&lt;script&gt;held") {
		t.Errorf("the page:\n%s", page)
	}
}
