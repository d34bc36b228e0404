package engagement

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Errors of cached reads whose informer has not synced. They match errNotSynced.
var (
	errNotSynced   = errors.New("cache not synced")
	errReadTimeout = fmt.Errorf("%w within the read timeout", errNotSynced)
	errDisengaged  = fmt.Errorf("%w: cluster disengaged", errNotSynced)
)

// memberCache is the cache of an engaged cluster. For everybody it behaves as the cache it wraps, with two
// differences: under the mark of an engagement neither GetInformer nor WaitForCacheSync waits, and a call that waits for
// an informer's first sync ends with the cluster, and a read after a bound, too. Reads wait under the mark as well:
// event handlers are called with a context that descends from it.
type memberCache struct {
	crcache.Cache
	readTimeout time.Duration
	scheme      *runtime.Scheme
	mapper      *cacheMapper
	forget      func(schema.GroupVersionResource) // told of resources that are not watched any longer
	life        context.Context                   // ends when the cluster is disengaged; set before the cluster is served
	// kinds holds a *kindInformer for every kindKey that somebody has asked for, by an informer or a read.
	kinds sync.Map
	// asked says that the kinds are to be looked over. Capacity 1.
	asked chan struct{}
	// synced holds the readKeys whose informer was once seen synced, so that their reads take no detour.
	synced sync.Map
}

// readKey tells informers apart: by Go type, and by kind where the type alone does not say it.
type readKey struct {
	objType reflect.Type
	gvk     schema.GroupVersionKind
}

func keyOf(obj runtime.Object) readKey {
	return readKey{reflect.TypeOf(obj), obj.GetObjectKind().GroupVersionKind()}
}

// GetInformer returns the informer of the object's kind. Under the mark, a kind that the cluster does not serve is
// no error: its informer is pending.
func (c *memberCache) GetInformer(ctx context.Context, obj client.Object, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	k, err := c.kindOf(obj)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, k, opts)
}

// GetInformerForKind is GetInformer for the typed objects of a kind.
func (c *memberCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	obj, err := c.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	k, err := c.kindOf(obj)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, k, opts)
}

func (c *memberCache) informer(ctx context.Context, k *kindInformer, opts []crcache.InformerGetOption) (crcache.Informer, error) {
	if marked(ctx) {
		opts = append(opts, crcache.BlockUntilSynced(false))
		if err := k.activate(ctx, c, opts...); err != nil {
			return nil, err
		}
		c.ask() // whatever it is, pending or just gone, settle puts it right
		return k, nil
	}
	ctx, release := c.untilDisengaged(ctx)
	defer release()
	if _, err := c.Cache.GetInformer(ctx, k.obj, opts...); err != nil {
		return nil, err
	}
	return k, k.activate(ctx, c, crcache.BlockUntilSynced(false))
}

// IndexField adds an index. For a kind that the cluster does not serve, it is added when it does.
func (c *memberCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	defer c.ask()
	return k.addIndex(ctx, c, index{indexKey{field: field}, obj, extract})
}

// RemoveInformer stops the informer of the object's kind. Handlers that were added to it hear nothing any longer.
func (c *memberCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	k.drop()
	return c.stopInformer(ctx, k)
}

// stopInformer stops the wrapped cache's informer of a kind, even one that the cluster does not serve any longer.
func (c *memberCache) stopInformer(ctx context.Context, k *kindInformer) error {
	defer c.synced.Clear()
	if mapping, err := c.mapper.RESTMapping(k.gvk.GroupKind(), k.gvk.Version); err == nil {
		c.forget(mapping.Resource)
	}
	return c.Cache.RemoveInformer(ctx, k.obj)
}

// firstSync waits until every informer has synced, those that were added meanwhile included, and says whether it
// has come to that.
func (c *memberCache) firstSync(ctx context.Context) bool {
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		synced := true
		c.allKinds(func(k *kindInformer) { synced = synced && k.HasSynced() })
		if synced {
			return true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}

// syncInterval is how often it is looked whether the informers have synced, as in client-go.
const syncInterval = 100 * time.Millisecond

// ask has the kinds looked over soon.
func (c *memberCache) ask() {
	select {
	case c.asked <- struct{}{}:
	default:
	}
}

// WaitForCacheSync waits until every informer has synced. Under the mark it returns true at once.
func (c *memberCache) WaitForCacheSync(ctx context.Context) bool {
	if marked(ctx) {
		return true
	}
	ctx, release := c.untilDisengaged(ctx)
	defer release()
	return c.Cache.WaitForCacheSync(ctx)
}

// Get reads an object.
func (c *memberCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	k := keyOf(obj)
	if _, ok := c.synced.Load(k); ok {
		return c.Cache.Get(ctx, key, obj, opts...)
	}
	return c.firstRead(ctx, obj, k, func(ctx context.Context) error { return c.Cache.Get(ctx, key, obj, opts...) })
}

// List reads objects.
func (c *memberCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	k := keyOf(list)
	if _, ok := c.synced.Load(k); ok {
		return c.Cache.List(ctx, list, opts...)
	}
	return c.firstRead(ctx, list, k, func(ctx context.Context) error { return c.Cache.List(ctx, list, opts...) })
}

// firstRead is a read that may have to wait for its informer's first sync.
func (c *memberCache) firstRead(ctx context.Context, obj runtime.Object, key readKey, read func(context.Context) error) error {
	kind, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	bounded, release := c.untilDisengaged(ctx)
	defer release()
	bounded, cancel := context.WithTimeoutCause(bounded, c.readTimeout, errReadTimeout)
	defer cancel()
	kind.noteRead()
	err = read(bounded)
	for notStarted := (*crcache.ErrCacheNotStarted)(nil); errors.As(err, &notStarted) && bounded.Err() == nil; {
		// It was engaged a moment ago and waits for its turn to list.
		select {
		case <-time.After(startInterval):
			err = read(bounded)
		case <-bounded.Done():
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		if kind.readSynced(ctx, c) {
			c.synced.Store(key, true)
		}
		return err
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("read %v: %w", key.objType, context.Cause(bounded))
	}
	return err
}

// startInterval is how often a read looks whether the cache has been started.
const startInterval = 10 * time.Millisecond

// untilDisengaged returns a context that also ends with the cluster.
func (c *memberCache) untilDisengaged(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(errDisengaged) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
