package engagement

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cacheMapper is the mapper of the wrapped cache. It answers as the cluster's own, but can be made to assume that kinds are
// served which are not: the wrapped cache wants to know a kind's scope even in order to stop its informer, and to
// take options for it.
type cacheMapper struct {
	meta.RESTMapper
	assuming atomic.Int64
	known    sync.Map // schema.GroupVersionKind → *meta.RESTMapping, the last one
}

// assume makes the mapper know every kind until release is called.
func (m *cacheMapper) assume() (release func()) {
	m.assuming.Add(1)
	return func() { m.assuming.Add(-1) }
}

// RESTMapping maps a kind. One that is assumed is what it was last, or else namespaced, as most kinds are.
func (m *cacheMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.RESTMapper.RESTMapping(gk, versions...)
	if len(versions) != 1 {
		return mapping, err
	}
	gvk := gk.WithVersion(versions[0])
	switch {
	case err == nil:
		m.known.Store(gvk, mapping)
	case m.assuming.Load() > 0 && meta.IsNoMatchError(err):
		if known, ok := m.known.Load(gvk); ok {
			return known.(*meta.RESTMapping), nil
		}
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		return &meta.RESTMapping{Resource: resource, GroupVersionKind: gvk, Scope: meta.RESTScopeNamespace}, nil
	}
	return mapping, err
}
