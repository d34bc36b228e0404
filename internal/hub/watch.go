package hub

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// namespaceWatch keeps the source's store up to date for one namespace and version. It is what a
// cache.Reflector lists and watches with, and also what it stores into.
type namespaceWatch[T any] struct {
	source    *Source[T]
	client    *Client
	gvr       schema.GroupVersionResource
	namespace string
	events    events
	gone      context.CancelFunc // ends the watches of all namespaces: the hub no longer serves the kind
}

func (w *namespaceWatch[T]) run(ctx context.Context) {
	reflector := cache.NewReflectorWithOptions(w, nil, reflected[T]{w}, cache.ReflectorOptions{
		Name:            w.source.what(w.namespace),
		TypeDescription: w.source.opts.Kind.String(),
		// A hub that is back is noticed within 7.5 s. client-go's half a minute is meant for every informer of a
		// cluster; a backend has a handful of watches.
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Cap: 5 * time.Second, Steps: 5, Factor: 2, Jitter: 0.5},
	})
	// The reflector would log every attempt; what there is to say is said once, as Health.
	reflector.RunWithContext(logr.NewContext(ctx, logr.Discard()))
}

// IsWatchListSemanticsUnSupported tells client-go to list and then watch, rather than to have the watch send
// the list first: that way lists have a deadline.
func (w *namespaceWatch[T]) IsWatchListSemanticsUnSupported() bool { return true }

func (w *namespaceWatch[T]) selected(opts *metav1.ListOptions) {
	opts.LabelSelector, opts.FieldSelector = w.source.opts.LabelSelector, w.source.opts.FieldSelector
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (w *namespaceWatch[T]) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	w.selected(&opts)
	if opts.ResourceVersion == "0" {
		// "0" allows the hub any state that it happens to have cached, even one older than what an earlier run
		// acted upon.
		opts.ResourceVersion = ""
	}
	list, err := w.client.list(ctx, w.gvr, w.namespace, opts)
	if err != nil {
		return nil, w.failed(ctx, err)
	}
	return list, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (w *namespaceWatch[T]) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w.selected(&opts)
	events, err := w.client.watch(ctx, w.gvr, w.namespace, opts)
	if err != nil {
		return nil, w.failed(ctx, err)
	}
	// A watch is opened only after a list.
	w.source.well(w.namespace)
	w.events.wake()
	return events, nil
}

// failed takes note of a failed request and returns its error.
func (w *namespaceWatch[T]) failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		// Ordinary: the reflector lists anew.
		return err
	case apierrors.IsNotFound(err):
		w.source.failed(err)
		w.gone()
	default:
		w.source.failed(err, w.namespace)
	}
	w.events.wake()
	return err
}

// List and Watch implement cache.ListerWatcher, which client-go asks for by type and does not call.

func (w *namespaceWatch[T]) List(opts metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), opts)
}

func (w *namespaceWatch[T]) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), opts)
}

// reflected is the cache.ReflectorStore of a namespaceWatch. No method returns an error, ever: client-go would
// log it together with the object, which may be a Secret.
type reflected[T any] struct{ w *namespaceWatch[T] }

func (r reflected[T]) Add(obj any) error    { return r.Update(obj) }
func (r reflected[T]) Resync() error        { return nil }
func (r reflected[T]) Delete(obj any) error { r.set(obj, false); return nil }
func (r reflected[T]) Update(obj any) error { r.set(obj, true); return nil }

func (r reflected[T]) set(obj any, exists bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	var view *T
	if exists {
		view = r.view(u)
	}
	r.w.events.changed(r.w.source.store.set(keyOf(u), view))
}

func (r reflected[T]) Replace(objs []any, _ string) error {
	views := make(map[string]*T, len(objs))
	for _, obj := range objs {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			if view := r.view(u); view != nil {
				views[keyOf(u)] = view
			}
		}
	}
	// In this order: see Loop.work.
	r.w.events.changed(r.w.source.store.replace(r.w.namespace, views))
	r.w.source.well(r.w.namespace)
	r.w.events.wake()
	return nil
}

func (r reflected[T]) view(u *unstructured.Unstructured) *T {
	u.SetManagedFields(nil)
	// It is a copy of the whole object, and of a Secret's data, and would end up among a cluster's annotations.
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	if view, ok := r.w.source.opts.View(u); ok {
		return &view
	}
	return nil
}

func keyOf(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetName()
	}
	return u.GetNamespace() + "/" + u.GetName()
}
