//go:build unix

package transport

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

// BenchmarkRoundTrip measures what the round tripper adds to a bare http.Transport. Both send the same request to the same server
// over HTTP/2, by turns in one run, so that whatever else the machine does hits both alike: the metrics overhead-ns/op and
// extra-allocs/op are the differences of the medians and of the averages.
func BenchmarkRoundTrip(b *testing.B) {
	s := newServer(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	tr := newTransport(b, s.spec("token"), Options{})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca.pem)
	bare := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer bare.CloseIdleConnections()

	once := func(rt http.RoundTripper, base string) time.Duration {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, base+"/api/v1/namespaces/a/configmaps/c", nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Accept", "application/json")
		r.Header.Set("User-Agent", "bench")
		begin := time.Now()
		resp, err := rt.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return time.Since(begin)
	}
	ours := func() time.Duration { return once(tr, member) }
	theirs := func() time.Duration { return once(bare, s.URL) }
	ours()
	theirs()
	var a, c []time.Duration
	for b.Loop() {
		a = append(a, ours())
		c = append(c, theirs())
	}
	b.StopTimer()
	ourMedian, bareMedian := median(a), median(c)
	b.ReportMetric(float64(ourMedian-bareMedian), "overhead-ns/op")
	b.ReportMetric(float64(ourMedian)/float64(bareMedian), "x-bare")
	b.ReportMetric(testing.AllocsPerRun(500, func() { ours() })-testing.AllocsPerRun(500, func() { theirs() }), "extra-allocs/op")
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkOverhead measures the same without a network: the time and the allocations of everything but the inner RoundTrip.
func BenchmarkOverhead(b *testing.B) {
	g := mustGeneration(b, connection.Spec{
		Endpoint: connection.Endpoint{Server: "https://host:6443"},
		Auth:     connection.Auth{Token: connection.NewSecret("token")},
	}, Options{})
	tr := New(g, Options{})
	answer := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
	instant := roundTripperFunc(func(*http.Request) (*http.Response, error) {
		resp := *answer
		return &resp, nil
	})
	g.wire = newWire(g.endpoint, nil, g.opts)
	g.wire.ordinary = instant
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, member+"/api/v1/namespaces/a/configmaps/c?resourceVersion=0", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "bench")
	// A process with a fleet's caches has a heap, so that the collector runs once in a while and not all the time.
	heap := make([]byte, 64<<20)
	defer runtime.KeepAlive(heap)
	b.ReportAllocs()
	begin := cpuTime(b)
	for b.Loop() {
		resp, err := tr.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	// With the garbage collector's share; unlike ns/op it does not grow when others use the machine.
	b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what the process has used of the machine's processors.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
