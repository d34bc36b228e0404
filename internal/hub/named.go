package hub

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tributary-fleet/tributary/backends"
)

// NamedOptions say what a Named reads.
type NamedOptions[T any] struct {
	// Kind is the kind of the objects, a built-in one.
	Kind Kind
	// Keys are the objects, each "namespace/name". The member that an object concerns is its key.
	Keys []string
	// Interval is the time between two reads of an object.
	Interval time.Duration
	// View is as in SourceOptions; an object that it does not need counts as missing.
	View func(*unstructured.Unstructured) (T, bool)
}

// Named keeps the views of objects that are known by name, like a [Source] that may neither list nor watch: each of
// them is read from time to time. It needs the right to get these objects and no other. What the hub does not answer leaves
// what is known of an object as it is. It is made for one run of a [Loop]. Its methods may be called concurrently.
type Named[T any] struct {
	opts NamedOptions[T]

	mu      sync.Mutex
	objects map[string]*namedObject[T] // by key; the map itself never changes
}

// namedObject is what is known of an object.
type namedObject[T any] struct {
	view  *T // nil while it is missing, or not known
	state watchState
}

// NewNamed returns objects of which nothing is known yet.
func NewNamed[T any](opts NamedOptions[T]) *Named[T] {
	n := &Named[T]{opts: opts, objects: map[string]*namedObject[T]{}}
	for _, key := range opts.Keys {
		n.objects[key] = &namedObject[T]{state: watchState{health: backends.Health{
			Reason: backends.ReasonStarting, Message: n.what(key) + ": waiting for the first answer"}}}
	}
	return n
}

// Get returns the view of an object; ok says that it is there, and known that it was read at all. What is neither may exist.
func (n *Named[T]) Get(key string) (view T, ok, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	object := n.objects[key]
	if object == nil {
		return view, false, false
	}
	if object.view != nil {
		view = *object.view
	}
	return view, object.view != nil, object.state.listed
}

// Trouble returns nil if the object was read last without trouble. Otherwise what is known of it may be out of date, and
// it returns why.
func (n *Named[T]) Trouble(key string) *backends.Health {
	n.mu.Lock()
	defer n.mu.Unlock()
	object := n.objects[key]
	if object == nil || object.state.health.Reason == "" {
		return nil
	}
	health := object.state.health
	return &health
}

func (n *Named[T]) what(key string) string { return "get " + n.opts.Kind.String() + " " + key }

func (n *Named[T]) members() []string { return n.opts.Keys }

func (n *Named[T]) states() []watchState {
	n.mu.Lock()
	defer n.mu.Unlock()
	states := make([]watchState, 0, len(n.opts.Keys))
	for _, key := range n.opts.Keys {
		states = append(states, n.objects[key].state)
	}
	return states
}

// run reads the objects until ctx ends, one after the other, and tells events what has changed.
func (n *Named[T]) run(ctx context.Context, client *Client, events events) {
	gvr := schema.GroupVersionResource{Group: n.opts.Kind.Group, Version: n.opts.Kind.Versions[0], Resource: n.opts.Kind.Resource}
	for {
		for i, key := range n.opts.Keys {
			namespace, name, _ := strings.Cut(key, "/")
			u, err := client.get(ctx, gvr, namespace, name)
			if ctx.Err() != nil {
				return
			}
			var answered apierrors.APIStatus
			if err != nil && !errors.As(err, &answered) {
				// There is no hub to ask for the others.
				n.failed(err, n.opts.Keys[i:]...)
				break
			}
			n.record(key, u, err, events)
		}
		events.wake()
		if !sleep(ctx, n.opts.Interval) {
			return
		}
	}
}

// record takes note of what the hub has said about an object.
func (n *Named[T]) record(key string, u *unstructured.Unstructured, err error, events events) {
	if err != nil && !apierrors.IsNotFound(err) {
		n.failed(err, key)
		return
	}
	var now *T
	if err == nil {
		if view, ok := n.opts.View(u); ok {
			now = &view
		}
	}
	n.mu.Lock()
	changed := !reflect.DeepEqual(n.objects[key].view, now)
	n.objects[key].view = now
	n.mu.Unlock()
	if changed {
		events.changed([]string{key})
	}
	// Only now: see Loop.work.
	n.mu.Lock()
	n.objects[key].state = watchState{answered: true, listed: true}
	n.mu.Unlock()
}

// failed records that objects could not be read.
func (n *Named[T]) failed(err error, keys ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range keys {
		state := &n.objects[key].state
		state.answered = true
		state.health = healthOf(n.what(key), err)
	}
}
