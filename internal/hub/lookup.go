package hub

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tributary-fleet/tributary/backends"
)

const (
	// lookupSpacing is the time between two reads, whatever is wanted: five a second at most.
	lookupSpacing = 200 * time.Millisecond
	// lookupMin and lookupMax bound the time between two reads of an object that is not there, which doubles.
	lookupMin, lookupMax = 2 * time.Second, time.Minute
	// lookupFound is the time between two reads of an object that is there.
	lookupFound = 30 * time.Second
)

// LookupOptions say what a Lookup reads.
type LookupOptions[T any] struct {
	// Kind is the kind of the objects, a built-in one.
	Kind Kind
	// View is as in SourceOptions; an object that it does not need counts as missing.
	View func(*unstructured.Unstructured) (T, bool)
}

// Lookup reads single objects that a [Source] cannot select, such as those that lack a label. It is a [Watcher] of
// the same loop, but what it cannot read neither delays the loop nor is the inventory's trouble. It reads one
// object at a time, rarely, and only as long as it is wanted. It is made for one run of a [Loop].
// Its methods may be called concurrently.
type Lookup[T any] struct {
	opts LookupOptions[T]
	work chan struct{} // holds one element if something new is wanted

	mu     sync.Mutex
	wanted map[string]*lookedUp[T] // by "namespace/name"
}

// lookedUp is a wanted object and what is known of it.
type lookedUp[T any] struct {
	member string
	next   time.Time     // of the next read
	wait   time.Duration // before the one after that
	answer answer[T]
}

// answer is what a read has told; the zero value if there was none yet.
type answer[T any] struct {
	view   *T
	health backends.Health // why it could not be read
}

// NewLookup returns a lookup that wants nothing yet.
func NewLookup[T any](opts LookupOptions[T]) *Lookup[T] {
	return &Lookup[T]{opts: opts, work: make(chan struct{}, 1), wanted: map[string]*lookedUp[T]{}}
}

// Want returns the object "namespace/name" as it was read last, if it was there, and how reading it went. It is read
// from time to time from now on, until it is unwanted, and member is reconciled when that tells something new.
func (l *Lookup[T]) Want(key, member string) (view T, ok bool, health backends.Health) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.wanted[key]
	if w == nil {
		w = &lookedUp[T]{member: member, wait: lookupMin}
		l.wanted[key] = w
		select {
		case l.work <- struct{}{}:
		default:
		}
	}
	if w.answer.view != nil {
		return *w.answer.view, true, w.answer.health
	}
	return view, false, w.answer.health
}

// Unwant ends the reading of an object and drops what is known of it.
func (l *Lookup[T]) Unwant(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wanted, key)
}

func (l *Lookup[T]) states() []watchState { return nil }

// members is empty: whoever wants an object knows the member from elsewhere.
func (l *Lookup[T]) members() []string { return nil }

func (l *Lookup[T]) run(ctx context.Context, client *Client, events events) {
	for {
		wait := l.readNext(ctx, client, events)
		timer := time.NewTimer(max(wait, lookupSpacing))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			continue
		case <-l.work:
			timer.Stop()
		}
		if !sleep(ctx, lookupSpacing) {
			return
		}
	}
}

// readNext reads the object that has waited longest, if one is due, and returns the time until the next is.
func (l *Lookup[T]) readNext(ctx context.Context, client *Client, events events) time.Duration {
	key, wait := l.first()
	if key == "" || wait > 0 {
		return wait
	}
	namespace, name, _ := strings.Cut(key, "/")
	gvr := schema.GroupVersionResource{Group: l.opts.Kind.Group, Version: l.opts.Kind.Versions[0], Resource: l.opts.Kind.Resource}
	u, err := client.get(ctx, gvr, namespace, name)
	if ctx.Err() != nil {
		return 0
	}
	if member, changed := l.record(key, u, err); changed {
		events.changed([]string{member})
	}
	_, wait = l.first()
	return wait
}

// first returns the key of the object that is to be read first, and the time until then.
func (l *Lookup[T]) first() (key string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait = time.Hour
	for k, w := range l.wanted {
		if until := time.Until(w.next); key == "" || until < wait {
			key, wait = k, until
		}
	}
	return key, wait
}

// record notes what a read has told, and returns the member that it concerns if it is something new.
func (l *Lookup[T]) record(key string, u *unstructured.Unstructured, err error) (member string, changed bool) {
	var now answer[T]
	switch {
	case err == nil:
		if view, ok := l.opts.View(u); ok {
			now.view = &view
		}
	case !apierrors.IsNotFound(err):
		now.health = healthOf("get "+l.opts.Kind.String()+" "+key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.wanted[key]
	if w == nil {
		return "", false
	}
	if now.health.Reason != "" {
		now.view = w.answer.view // trouble says nothing about the object
	}
	changed = !reflect.DeepEqual(w.answer, now)
	w.answer = now
	wait := w.wait
	if now.view != nil && now.health.Reason == "" {
		wait, w.wait = lookupFound, lookupMin
	} else {
		w.wait = min(2*w.wait, lookupMax)
	}
	w.next = time.Now().Add(wait)
	return w.member, changed
}
