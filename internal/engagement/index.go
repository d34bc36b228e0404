package engagement

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// index is a field index that every cluster has, present and future.
type index struct {
	key     indexKey
	obj     client.Object
	extract client.IndexerFunc
}

// indexKey makes an index the same as another: a type (and kind, for unstructured objects) and a field.
type indexKey struct {
	objType reflect.Type
	gvk     schema.GroupVersionKind
	field   string
}

// indexes is the list of all indexes, in the order of their registration. It only grows.
type indexes struct {
	mu  sync.Mutex
	all []index
}

// add records an index, and reports whether it is new.
func (i *indexes) add(obj client.Object, field string, extract client.IndexerFunc) (index, bool) {
	x := index{indexKey{objType: reflect.TypeOf(obj), field: field}, obj, extract}
	switch obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata: // the others' types say what they are
		x.key.gvk = obj.GetObjectKind().GroupVersionKind()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, known := range i.all {
		if known.key == x.key {
			return known, false
		}
	}
	i.all = append(i.all, x)
	return x, true
}

func (i *indexes) list() []index {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all[:len(i.all):len(i.all)]
}

// IndexField adds an index to every cluster, present and future. Repeating one for the same type and field does
// nothing. A cluster that cannot take the index is that cluster's trouble, and is logged, not returned.
func (e *Engine) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	switch {
	case obj == nil:
		return fmt.Errorf("index field %q: no object given", field)
	case field == "":
		return fmt.Errorf("index %T: no field given", obj)
	case extract == nil:
		return fmt.Errorf("index field %q of %T: no function given", field, obj)
	}
	x, isNew := e.indexes.add(obj, field, extract)
	if !isNew {
		return nil
	}
	e.mu.Lock()
	r := e.run
	var present []*engaged
	for _, m := range e.members {
		if c := m.machine.current; c != nil {
			present = append(present, m.engaged[c.id])
		}
	}
	e.mu.Unlock()
	for _, en := range present {
		if err := en.built.index(ctx, x); err != nil {
			r.log.Error(err, "index not added", "cluster", en.built.name)
		}
	}
	return nil
}

// index adds an index to the cluster unless it has it. When it returns, the index is there, whoever added it.
func (b *built) index(ctx context.Context, x index) error {
	b.indexMu.Lock()
	one, ok := b.indexed[x.key]
	if !ok {
		one = &onceIndexed{done: make(chan struct{})}
		b.indexed[x.key] = one
	}
	b.indexMu.Unlock()
	if !ok {
		one.err = b.cluster.GetFieldIndexer().IndexField(mark(ctx), x.obj, x.key.field, x.extract)
		close(one.done)
	}
	<-one.done
	if one.err != nil {
		return fmt.Errorf("index field %q of %T: %w", x.key.field, x.obj, one.err)
	}
	return nil
}

// onceIndexed is one index of one cluster: added once, waited for by everybody.
type onceIndexed struct {
	done chan struct{}
	err  error
}
