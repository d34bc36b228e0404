package engagement

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// pendingInterval is how often a cluster is asked what it serves while somebody waits for a kind, at first: for
	// as long as a kind is likely to be just being installed.
	pendingInterval = 3 * time.Second
	pendingEager    = 20
	// pendingPatient is how often afterwards: a kind may be missing for good, in thousands of clusters.
	pendingPatient = 10 * time.Second
)

// kindKey tells informers apart as the wrapped cache does: by kind, and by the form that is cached.
type kindKey struct {
	gvk  schema.GroupVersionKind
	form string
}

const (
	formTyped        = "typed"
	formUnstructured = "unstructured"
	formMetadata     = "metadata"
)

// kindOf returns the kindInformer of an object, or of a list's objects.
func (c *memberCache) kindOf(obj runtime.Object) (*kindInformer, error) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return nil, err
	}
	if meta.IsListType(obj) {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	form := formTyped
	switch obj.(type) {
	case runtime.Unstructured:
		form = formUnstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		form = formMetadata
	}
	key := kindKey{gvk, form}
	if k, ok := c.kinds.Load(key); ok {
		return k.(*kindInformer), nil
	}
	of, err := c.newObject(key)
	if err != nil {
		return nil, err
	}
	k, _ := c.kinds.LoadOrStore(key, &kindInformer{gvk: gvk, obj: of})
	return k.(*kindInformer), nil
}

func (c *memberCache) newObject(key kindKey) (client.Object, error) {
	switch key.form {
	case formUnstructured:
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(key.gvk)
		return u, nil
	case formMetadata:
		p := &metav1.PartialObjectMetadata{}
		p.SetGroupVersionKind(key.gvk)
		return p, nil
	}
	obj, err := c.scheme.New(key.gvk)
	if err != nil {
		return nil, err
	}
	o, ok := obj.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%v is no object: %v", key.gvk, reflect.TypeOf(obj))
	}
	return o, nil
}

// allKinds calls f for each kind that somebody has asked for.
func (c *memberCache) allKinds(f func(*kindInformer)) {
	c.kinds.Range(func(_, k any) bool {
		f(k.(*kindInformer))
		return true
	})
}

// watched returns the resources of the kinds that are cached.
func (c *memberCache) watched(mapper meta.RESTMapper) (all []schema.GroupVersionResource) {
	c.allKinds(func(k *kindInformer) {
		if mapping, err := mapper.RESTMapping(k.gvk.GroupKind(), k.gvk.Version); err == nil && !slices.Contains(all, mapping.Resource) {
			all = append(all, mapping.Resource)
		}
	})
	return all
}

// settle brings every informer in line with what the cluster serves, and returns the kinds that are waited for.
func (c *memberCache) settle(ctx context.Context, serves func(schema.GroupVersionKind) bool) (pending []schema.GroupVersionKind, err error) {
	c.allKinds(func(k *kindInformer) {
		served := serves(k.gvk)
		switch {
		case served && k.pending():
			err = cmp.Or(err, k.activate(mark(ctx), c))
		case !served && k.live():
			k.suspend(ctx, c)
		}
		if k.pending() {
			pending = append(pending, k.gvk)
		}
	})
	slices.SortFunc(pending, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	return pending, err
}

// maps reports whether the cluster's own mapper, which looks by itself for what it does not know, knows a kind.
func (c *memberCache) maps(gvk schema.GroupVersionKind) bool {
	_, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	return !meta.IsNoMatchError(err)
}

// tendKinds keeps the cluster's informers in line with what it serves until ctx ends. told is called with
// the kinds that are waited for, whenever they are others.
func (b *built) tendKinds(ctx context.Context, told func([]schema.GroupVersionKind, error)) {
	timer := time.NewTimer(pendingInterval)
	defer timer.Stop()
	var last []schema.GroupVersionKind
	for asked := 0; ; {
		var changed <-chan struct{}
		serves := b.cache.maps
		if b.mapper != nil {
			changed, serves = b.mapper.Changed(), b.mapper.Surface().Serves
		}
		pending, err := b.cache.settle(ctx, serves)
		if err != nil || !slices.Equal(pending, last) {
			told(pending, err)
			last, asked = pending, 0
		}
		var due <-chan time.Time
		if len(pending) > 0 {
			interval := pendingInterval
			if asked >= pendingEager {
				interval = pendingPatient
			}
			timer.Reset(interval/2 + time.Duration(jitter()*float64(interval/2)))
			due = timer.C
		}
		select {
		case <-changed:
		case <-b.cache.asked:
		case <-due:
			asked++
			if b.mapper != nil {
				b.mapper.Refresh()
			}
		case <-ctx.Done():
			return
		}
	}
}
