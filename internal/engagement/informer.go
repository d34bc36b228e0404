package engagement

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kindInformer is a kind's informer as controllers hold it. While the cluster does not serve the kind it is
// pending: it takes handlers and indexes, counts as synced, and delivers nothing. When the kind is installed it
// comes alive with everything that was added, and goes back to pending when the kind is removed. So a
// controller engages with every cluster alike, whatever each of them serves.
type kindInformer struct {
	gvk schema.GroupVersionKind
	obj client.Object // of the kind, in the form (typed, unstructured, metadata) that is cached

	// mu guards what follows. It is held while handlers are put into the wrapped informer, which is done in
	// memory and calls nobody.
	mu       sync.Mutex
	inner    crcache.Informer // nil while pending
	wanted   bool             // somebody asked for the informer, so it is to come alive when the kind is served
	read     bool             // somebody has read the kind, so the wrapped cache has an informer even if inner is nil
	handlers []*registration
	indexes  []index
}

// registration is a handler, with its registration in the wrapped informer while there is one.
type registration struct {
	informer *kindInformer
	handler  toolscache.ResourceEventHandler
	options  toolscache.HandlerOptions
	inner    toolscache.ResourceEventHandlerRegistration // nil while pending; guarded by informer.mu
}

var _ crcache.Informer = (*kindInformer)(nil)

// activate puts the informer upon the cache's own, unless the cluster does not serve the kind: then it is
// pending, which is no error. ctx says whether to wait for its sync.
func (k *kindInformer) activate(ctx context.Context, c *memberCache, opts ...crcache.InformerGetOption) error {
	k.mu.Lock()
	k.wanted = true
	alive, indexes := k.inner != nil && !k.inner.IsStopped(), slices.Clone(k.indexes)
	k.mu.Unlock()
	if alive {
		return nil // a cache of several namespaces makes a new informer at each request
	}
	inner, err := c.Cache.GetInformer(ctx, k.obj, opts...)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, x := range indexes {
		// The index may be there already; the wrapped informer says so with an error that is of no interest.
		_ = c.Cache.IndexField(mark(ctx), x.obj, x.key.field, x.extract)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inner != nil && !k.inner.IsStopped() {
		return nil // somebody else was faster
	}
	for _, r := range k.handlers {
		if err := r.attach(inner); err != nil {
			return fmt.Errorf("add handler to informer of %v: %w", k.gvk, err)
		}
	}
	k.inner = inner // last: with less than all handlers it would count as alive
	return nil
}

// suspend makes the informer pending, and stops the cache's own.
func (k *kindInformer) suspend(ctx context.Context, c *memberCache) {
	k.mu.Lock()
	k.inner, k.read = nil, false
	for _, r := range k.handlers {
		r.inner = nil
	}
	k.mu.Unlock()
	release := c.mapper.assume()
	defer release()
	_ = c.stopInformer(ctx, k) // fails only for types that the scheme does not know, which have no informer
}

// drop forgets the handlers, and that anybody wants the informer.
func (k *kindInformer) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inner, k.handlers, k.wanted, k.read = nil, nil, false, false
}

// pending reports whether somebody waits for the kind to be served, or for its informer to be made anew.
func (k *kindInformer) pending() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted && (k.inner == nil || k.inner.IsStopped())
}

// readSynced reports whether the kind's informer has synced in every namespace that it watches, after a read has
// succeeded in one.
func (k *kindInformer) readSynced(ctx context.Context, c *memberCache) bool {
	inner := k.alive()
	if inner == nil {
		if err := k.activate(mark(ctx), c, crcache.BlockUntilSynced(false)); err != nil {
			return false
		}
		inner = k.alive()
	}
	return inner != nil && inner.HasSynced()
}

// live reports whether the wrapped cache has an informer of the kind.
func (k *kindInformer) live() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inner != nil || k.read
}

// noteRead notes that a read makes the wrapped cache have an informer of the kind.
func (k *kindInformer) noteRead() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = true
}

// alive returns the wrapped informer, or nil.
func (k *kindInformer) alive() crcache.Informer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inner
}

// addIndex adds a field index, now or when the kind is served.
func (k *kindInformer) addIndex(ctx context.Context, c *memberCache, x index) error {
	k.mu.Lock()
	k.indexes = append(k.indexes, x)
	k.mu.Unlock()
	err := c.Cache.IndexField(mark(ctx), x.obj, x.key.field, x.extract)
	k.mu.Lock()
	defer k.mu.Unlock()
	if meta.IsNoMatchError(err) {
		k.wanted = true
		return nil
	}
	k.read = true // the wrapped cache has an informer
	return err
}

// AddEventHandler implements cache.Informer.
func (k *kindInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return k.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (k *kindInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return k.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.Informer.
func (k *kindInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &registration{informer: k, handler: h, options: options}
	k.mu.Lock()
	defer k.mu.Unlock()
	// A stopped informer takes no handler: the cluster or its kind has gone a moment ago. That is no error of
	// the controller's, and it would end the manager if it were one.
	if k.inner != nil && !k.inner.IsStopped() {
		if err := r.attach(k.inner); err != nil && !k.inner.IsStopped() {
			return nil, err
		}
	}
	k.handlers = append(k.handlers, r)
	return r, nil
}

// attach adds the handler to the wrapped informer. The caller holds informer.mu.
func (r *registration) attach(inner crcache.Informer) (err error) {
	r.inner, err = inner.AddEventHandlerWithOptions(r.handler, r.options)
	return err
}

// RemoveEventHandler implements cache.Informer.
func (k *kindInformer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok || r.informer != k {
		return fmt.Errorf("remove handler from informer of %v: it is not one of this informer's", k.gvk)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.handlers = slices.DeleteFunc(k.handlers, func(o *registration) bool { return o == r })
	if k.inner == nil || r.inner == nil {
		return nil
	}
	return k.inner.RemoveEventHandler(r.inner)
}

// AddIndexers implements cache.Informer. Indexers that are added while the kind is not served are refused: only
// field indexes can be kept for later.
func (k *kindInformer) AddIndexers(indexers toolscache.Indexers) error {
	inner := k.alive()
	if inner == nil {
		return fmt.Errorf("add indexers to informer of %v: the kind is not served; use IndexField", k.gvk)
	}
	return inner.AddIndexers(indexers)
}

// HasSynced implements cache.Informer. What is pending has nothing to wait for.
func (k *kindInformer) HasSynced() bool {
	inner := k.alive()
	return inner == nil || inner.HasSynced()
}

// HasSyncedChecker implements cache.Informer.
func (k *kindInformer) HasSyncedChecker() toolscache.DoneChecker {
	if inner := k.alive(); inner != nil {
		return inner.HasSyncedChecker()
	}
	return nothingToSync{k.gvk}
}

// IsStopped implements cache.Informer.
func (k *kindInformer) IsStopped() bool {
	inner := k.alive()
	return inner != nil && inner.IsStopped()
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool {
	inner := r.attached()
	return inner == nil || inner.HasSynced()
}

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	if inner := r.attached(); inner != nil {
		return inner.HasSyncedChecker()
	}
	return nothingToSync{r.informer.gvk}
}

func (r *registration) attached() toolscache.ResourceEventHandlerRegistration {
	r.informer.mu.Lock()
	defer r.informer.mu.Unlock()
	return r.inner
}

// nothingToSync is the checker of a kind that is not served.
type nothingToSync struct{ gvk schema.GroupVersionKind }

func (n nothingToSync) Name() string { return fmt.Sprintf("pending informer of %v", n.gvk) }

func (n nothingToSync) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
