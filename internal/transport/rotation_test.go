package transport

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

// TestRotationsLeaveNothingBehind rotates each thing 500 times under watches that are opened again whenever they end, as reflectors do it.
func TestRotationsLeaveNothingBehind(t *testing.T) {
	const rotations, watches = 500, 5
	for name, prepare := range map[string]func(t *testing.T, f, other *fleet) func(i int) connection.Spec{
		"token": func(_ *testing.T, f, _ *fleet) func(int) connection.Spec {
			return func(i int) connection.Spec { return f.spec(fmt.Sprintf("token-%d", i)) }
		},
		"client certificate": func(t *testing.T, f, _ *fleet) func(int) connection.Spec {
			return func(i int) connection.Spec {
				spec := f.spec("")
				cert, key := f.ca.issue(t, fmt.Sprintf("me-%d", i))
				spec.Auth.ClientCertificateData, spec.Auth.ClientKeyData = cert, connection.NewSecret(string(key))
				return spec
			}
		},
		"authority": func(t *testing.T, f, _ *fleet) func(int) connection.Spec {
			return func(i int) connection.Spec {
				ca := newAuthority(t, "CA")
				c := ca.pair(t, "server")
				f.certificate.Store(&c)
				spec := f.spec(fmt.Sprintf("token-%d", i))
				spec.Endpoint.CAData = ca.pem
				return spec
			}
		},
		"endpoint": func(_ *testing.T, f, other *fleet) func(int) connection.Spec {
			return func(i int) connection.Spec {
				server := f
				if i%2 == 1 {
					server = other
				}
				return server.spec(fmt.Sprintf("token-%d", i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, other := newFleet(t), newFleet(t)
			f.seen, other.seen = nil, nil // or their heap grows with every token
			next := prepare(t, f, other)
			// net/http keeps a closed HTTP/2 connection in memory until its idle timeout, if its last stream ended late, and until its next ping.
			o := Options{Stagger: time.Millisecond, IdleTimeout: time.Second, PingInterval: time.Second}
			tr := newTransport(t, next(0), o)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range watches {
				wg.Go(func() { keepWatching(ctx, t, tr) })
			}
			defer func() {
				cancel()
				wg.Wait()
			}()
			i := 0
			rotate := func(n int) {
				for range n {
					i++
					g := mustGeneration(t, next(i), o)
					mustGet(t, g, "/readyz")
					tr.Swap(g)
					mustGet(t, tr, "/api/v1/namespaces/a")
				}
			}
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			settle := func() {
				t.Helper()
				eventually(t, "the old generations to go", func() bool {
					tr.mu.Lock()
					defer tr.mu.Unlock()
					return len(tr.old) == 0
				})
				eventually(t, "the connections to be closed", func() bool { return f.conns.Load()+other.conns.Load() == 1 })
				// A watch that is between two generations has no goroutines at the server, and would lower the base line.
				eventually(t, "the watches to open", func() bool { return f.watches()+other.watches() == watches })
			}
			settle()
			rotate(20)
			settle()
			goroutines, before := runtime.NumGoroutine(), heap()
			rotate(rotations)
			settle()
			eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
			eventually(t, "the heap to shrink", func() bool { return heap() < before+1<<20 })
			t.Logf("%d rotations: goroutines %d to %d, heap %d to %d KiB, connections 1 to 1",
				rotations, goroutines, runtime.NumGoroutine(), before>>10, heap()>>10)
		})
	}
}

// keepWatching opens a watch again whenever it ends, until ctx does.
func keepWatching(ctx context.Context, t *testing.T, tr *Transport) {
	for ctx.Err() == nil {
		resp, err := tr.RoundTrip(get(t, watchPath).WithContext(ctx))
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("opening a watch: %v", err)
			}
			return
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil && ctx.Err() == nil {
			t.Errorf("a watch ended with %v", err)
		}
		_ = resp.Body.Close()
	}
}
