package faultproxy

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// BenchmarkManyProxies is what a thousand proxies with one idle connection each cost.
func BenchmarkManyProxies(b *testing.B) {
	const n = 1000
	target := echo(b, "hello")
	for b.Loop() {
		before, goroutines := memory(), runtime.NumGoroutine()
		proxies := make([]*Proxy, n)
		conns := make([]net.Conn, n)
		for i := range proxies {
			proxies[i] = start(b, target, Options{Delay: time.Millisecond})
			conns[i] = dial(b, proxies[i])
			expect(b, conns[i], "hello")
		}
		// The echo server's own goroutine for each connection is not the proxy's.
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines-n)/n, "goroutines/proxy")
		b.ReportMetric(float64(memory()-before)/n, "B/proxy")
		for i, p := range proxies {
			_ = conns[i].Close()
			p.Close()
		}
	}
}

func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// BenchmarkThroughput is one connection through the proxy and back, with and without a delay.
func BenchmarkThroughput(b *testing.B) {
	for _, delay := range []time.Duration{0, 25 * time.Millisecond} {
		b.Run(delay.String(), func(b *testing.B) {
			const size = 64 << 20
			p := start(b, echo(b, ""), Options{Delay: delay})
			b.SetBytes(size)
			for b.Loop() {
				c := dial(b, p)
				go func() {
					_, _ = c.Write(make([]byte, size))
					_ = c.CloseWrite()
				}()
				if n, err := io.Copy(io.Discard, c); n != size || err != nil {
					b.Fatalf("%d bytes, %v", n, err)
				}
				_ = c.Close()
			}
		})
	}
}
