package restmapper

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BenchmarkMemory shows what a cluster's mapper costs: ours, and one of its own for each cluster as client-go makes it.
func BenchmarkMemory(b *testing.B) {
	const clusters = 100
	for _, kinds := range []int{50, 2000} {
		groups := crds(kinds)
		measure := func(b *testing.B, mapper func(*Pool) meta.RESTMapper) {
			for b.Loop() {
				p := NewPool()
				kept := make([]meta.RESTMapper, clusters)
				before := heap()
				for i := range kept {
					kept[i] = mapper(p)
				}
				b.ReportMetric(float64(heap()-before)/clusters, "B/cluster")
				runtime.KeepAlive(kept)
			}
		}
		b.Run(fmt.Sprintf("kinds=%d/shared", kinds), func(b *testing.B) {
			measure(b, func(p *Pool) meta.RESTMapper { return p.NewMapper(p.surface(groups, nil, nil), nil, MapperOptions{}) })
		})
		b.Run(fmt.Sprintf("kinds=%d/own", kinds), func(b *testing.B) {
			measure(b, func(*Pool) meta.RESTMapper { return newMapper(canonical(groups)) })
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkRESTMapping is what each new informer and each first request for a kind pays.
func BenchmarkRESTMapping(b *testing.B) {
	p := NewPool()
	m := p.NewMapper(p.surface(append(small(), crds(2000)...), nil, nil), nil, MapperOptions{})
	defer m.Close()
	for name, gvk := range map[string]schema.GroupVersionKind{
		"core": {Version: "v1", Kind: "Pod"},
		"last": {Group: "g99.example.com", Version: "v1", Kind: "Widget1999"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDiscover is one discovery over a local connection.
func BenchmarkDiscover(b *testing.B) {
	for _, kinds := range []int{50, 2000} {
		s := newAPIServer(b, append(small(), crds(kinds)...))
		p := NewPool()
		known := discover(b, p, s, nil)
		b.Run(fmt.Sprintf("kinds=%d/first", kinds), func(b *testing.B) {
			for b.Loop() {
				discover(b, p, s, nil)
			}
		})
		b.Run(fmt.Sprintf("kinds=%d/unchanged", kinds), func(b *testing.B) {
			for b.Loop() {
				discover(b, p, s, known)
			}
		})
	}
}
