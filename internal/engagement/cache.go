package engagement

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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
	// kinds holds every GroupVersionKind that somebody has asked an informer of: what is being watched.
	kinds sync.Map
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

// GetInformer returns the informer of the object's kind.
func (c *memberCache) GetInformer(ctx context.Context, obj client.Object, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	c.noteKind(obj)
	if marked(ctx) {
		return c.Cache.GetInformer(ctx, obj, append(opts, crcache.BlockUntilSynced(false))...)
	}
	ctx, release := c.untilDisengaged(ctx)
	defer release()
	return c.Cache.GetInformer(ctx, obj, opts...)
}

// GetInformerForKind returns the informer of the kind.
func (c *memberCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	c.kinds.Store(gvk, true)
	if marked(ctx) {
		return c.Cache.GetInformerForKind(ctx, gvk, append(opts, crcache.BlockUntilSynced(false))...)
	}
	ctx, release := c.untilDisengaged(ctx)
	defer release()
	return c.Cache.GetInformerForKind(ctx, gvk, opts...)
}

// RemoveInformer removes the informer of the object's kind.
func (c *memberCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	defer c.synced.Clear()
	return c.Cache.RemoveInformer(ctx, obj)
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
	c.noteKind(obj)
	return c.firstRead(ctx, k, func(ctx context.Context) error { return c.Cache.Get(ctx, key, obj, opts...) })
}

// List reads objects.
func (c *memberCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	k := keyOf(list)
	if _, ok := c.synced.Load(k); ok {
		return c.Cache.List(ctx, list, opts...)
	}
	c.noteKind(list)
	return c.firstRead(ctx, k, func(ctx context.Context) error { return c.Cache.List(ctx, list, opts...) })
}

// firstRead is a read that may have to wait for its informer's first sync.
func (c *memberCache) firstRead(ctx context.Context, k readKey, read func(context.Context) error) error {
	bounded, release := c.untilDisengaged(ctx)
	defer release()
	timeout, cause := c.readTimeout, errReadTimeout
	if marked(ctx) {
		timeout, cause = 0, errEngaging
	}
	bounded, cancel := context.WithTimeoutCause(bounded, timeout, cause)
	defer cancel()
	err := read(bounded)
	if err == nil || apierrors.IsNotFound(err) {
		c.synced.Store(k, true)
		return err
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("read %v: %w", k.objType, context.Cause(bounded))
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

// noteKind remembers that the kind of an object, or of a list's objects, is watched.
func (c *memberCache) noteKind(obj runtime.Object) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return
	}
	if meta.IsListType(obj) {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	c.kinds.Store(gvk, true)
}

// resources returns what is watched, as the mapper's resources.
func (c *memberCache) resources(mapper meta.RESTMapper) []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	c.kinds.Range(func(k, _ any) bool {
		gvk := k.(schema.GroupVersionKind)
		if mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil && !slices.Contains(all, mapping.Resource) {
			all = append(all, mapping.Resource)
		}
		return true
	})
	return all
}
