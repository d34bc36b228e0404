package restmapper

import (
	"runtime"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pool finds the one mapper for each API surface. It holds none alive: a surface that no [Surface] or [Mapper]
// refers to any more is freed. Its methods may be called concurrently.
type Pool struct {
	mu     sync.Mutex
	tables map[Hash]weak.Pointer[table]
}

// NewPool returns an empty pool. A fleet needs one.
func NewPool() *Pool { return &Pool{tables: map[Hash]weak.Pointer[table]{}} }

// Len is how many distinct surfaces are in use.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, w := range p.tables {
		if w.Value() != nil {
			n++
		}
	}
	return n
}

// intern returns the table with the content of groups, which must be canonical.
func (p *Pool) intern(groups []group) *table {
	hash := hashOf(groups)
	t := p.lookup(hash, groups)
	// Outside the lock: a large surface takes milliseconds, and clusters with other surfaces need not wait.
	t.build.Do(func() {
		t.mapper = newMapper(t.groups)
		for _, g := range t.groups {
			for _, v := range g.versions {
				t.kinds += len(v.resources)
			}
		}
	})
	return t
}

func (p *Pool) lookup(hash Hash, groups []group) *table {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tables[hash].Value(); t != nil {
		return t
	}
	t := &table{hash: hash, groups: groups}
	p.tables[hash] = weak.Make(t)
	runtime.AddCleanup(t, p.forget, hash)
	return t
}

// forget drops the entry of a table that was freed, unless the surface has come back in the meantime.
func (p *Pool) forget(hash Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tables[hash].Value() == nil {
		delete(p.tables, hash)
	}
}

// surface makes a Surface of what was found. With previous, kinds of broken versions are taken over from there.
func (p *Pool) surface(found []group, broken map[schema.GroupVersion]error, previous *Surface) *Surface {
	groups := canonical(found)
	if previous != nil && len(broken) > 0 {
		// What is taken over must not grow with every discovery beyond what one may bring.
		if all := canonical(carry(groups, previous.shared.groups, broken)); bounded(all) {
			groups = all
		}
	}
	return &Surface{Broken: broken, shared: p.intern(groups)}
}
