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
	errEngaging    = fmt.Errorf("%w: an engagement does not wait for it", errNotSynced)
	errReadTimeout = fmt.Errorf("%w within the read timeout", errNotSynced)
	errDisengaged  = fmt.Errorf("%w: cluster disengaged", errNotSynced)
)

// memberCache is the cache of an engaged cluster. For everybody it behaves as the cache it wraps, with two
// differences: under the mark of an engagement no call waits, and a call that waits for an informer's first
// sync ends with the cluster, and a read after a bound, too.
type memberCache struct {
	crcache.Cache
	readTimeout time.Duration
	scheme      *runtime.Scheme
	life        context.Context // ends when the cluster is disengaged; set before the cluster is served
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
		if k.pending() {
			c.ask()
		}
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

// RemoveInformer stops the informer of the object's kind.
func (c *memberCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	defer c.synced.Clear()
	return c.Cache.RemoveInformer(ctx, obj)
}

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
	timeout, cause := c.readTimeout, errReadTimeout
	if marked(ctx) {
		timeout, cause = 0, errEngaging
	}
	bounded, cancel := context.WithTimeoutCause(bounded, timeout, cause)
	defer cancel()
	err = read(bounded)
	if err == nil || apierrors.IsNotFound(err) {
		kind.noteRead()
		c.synced.Store(key, true)
		return err
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("read %v: %w", key.objType, context.Cause(bounded))
	}
	return err
}

// untilDisengaged returns a context that also ends with the cluster.
func (c *memberCache) untilDisengaged(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(errDisengaged) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
