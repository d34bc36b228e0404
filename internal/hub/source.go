package hub

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tributary-fleet/tributary/backends"
)

// SourceOptions say what a Source watches.
type SourceOptions[T any] struct {
	// Kind is the kind of the objects.
	Kind Kind
	// Namespaces are where they are, each watched by itself, so a forbidden one harms no other. Empty: all
	// namespaces, or the kind has none.
	Namespaces []string
	// LabelSelector and FieldSelector are applied by the server. Empty: everything.
	LabelSelector, FieldSelector string
	// View returns what the backend needs of an object, as plain data that reflect.DeepEqual compares; or
	// false for an object that it does not need at all. What the view leaves out can change without anybody
	// noticing. Managed fields and kubectl's copy of the object are gone already. An object that View cannot make
	// sense of is to become a view that says so. It must not keep the object, nor call the Source.
	View func(*unstructured.Unstructured) (T, bool)
	// Members returns the members that an object may concern, which are reconciled when it changes. It depends on
	// nothing but the object.
	Members func(T) []string
}

// Source keeps the views of one kind's objects. It is made for one run of a [Loop]. Its methods may be called
// concurrently.
type Source[T any] struct {
	opts  SourceOptions[T]
	store *store[T]

	mu      sync.Mutex
	watches map[string]*watchState // by namespace; the map itself never changes
	order   []string               // the namespaces, sorted
}

// watchState is how the watch of one namespace is doing.
type watchState struct {
	answered bool // it has listed, or failed to
	listed   bool // it has listed
	health   backends.Health
}

// NewSource returns a source that knows nothing yet.
func NewSource[T any](opts SourceOptions[T]) *Source[T] {
	s := &Source[T]{opts: opts, store: newStore(opts.Members), watches: map[string]*watchState{}}
	namespaces := opts.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		s.watches[namespace] = &watchState{health: backends.Health{
			Reason: backends.ReasonStarting, Message: s.what(namespace) + ": waiting for the first answer"}}
	}
	s.order = slices.Sorted(maps.Keys(s.watches))
	return s
}

// Get returns the view of the object "namespace/name", or "name" for a kind without namespaces.
func (s *Source[T]) Get(key string) (T, bool) { return s.store.get(key) }

// ForMember returns the views of all objects that may concern a member, ordered by "namespace/name".
func (s *Source[T]) ForMember(member string) []T { return s.store.forMember(member) }

// InNamespace returns the views of all objects in a namespace, ordered by name. It looks at every object.
func (s *Source[T]) InNamespace(namespace string) []T { return s.store.inNamespace(namespace) }

// Unlisted returns nil if the objects of the given namespaces are known, or those of all if none is given: they were
// listed once. Otherwise it returns why they are not. An object that is not found may exist then.
func (s *Source[T]) Unlisted(namespaces ...string) *backends.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, all := s.watches[""]; all || namespaces == nil {
		namespaces = s.order
	}
	for _, namespace := range namespaces {
		state, ok := s.watches[namespace]
		if !ok {
			return &backends.Health{Reason: backends.ReasonDeselected, Message: s.what(namespace) + ": not watched"}
		}
		if !state.listed {
			health := state.health
			return &health
		}
	}
	return nil
}

// Trouble returns nil if all watches that concern a namespace are doing well. Otherwise what is known of its objects may
// be out of date, and it returns why.
func (s *Source[T]) Trouble(namespace string) *backends.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.watches[namespace]
	if all, everywhere := s.watches[""]; everywhere {
		state, ok = all, true
	}
	if !ok || state.health.Reason == "" {
		return nil
	}
	health := state.health
	return &health
}

// what names what is watched in a namespace, for people.
func (s *Source[T]) what(namespace string) string {
	if namespace == "" {
		return fmt.Sprintf("list %s", s.opts.Kind)
	}
	return fmt.Sprintf("list %s in namespace %q", s.opts.Kind, namespace)
}

// Members returns every member that some object may concern, sorted.
func (s *Source[T]) Members() []string { return s.store.allMembers() }

func (s *Source[T]) members() []string { return s.store.allMembers() }

func (s *Source[T]) states() []watchState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]watchState, 0, len(s.order))
	for _, namespace := range s.order {
		states = append(states, *s.watches[namespace])
	}
	return states
}

// failed records that a namespace, or the kind as a whole if none is given, could not be read.
func (s *Source[T]) failed(err error, namespaces ...string) {
	if namespaces == nil {
		namespaces = s.order
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, namespace := range namespaces {
		state := s.watches[namespace]
		state.answered = true
		state.health = healthOf(s.what(namespace), err)
	}
}

// well records that a namespace could be read.
func (s *Source[T]) well(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.watches[namespace] = watchState{answered: true, listed: true}
}

// run watches the kind until ctx ends, at whatever version the hub serves, and tells events what changes.
func (s *Source[T]) run(ctx context.Context, client *Client, events events) {
	for ctx.Err() == nil {
		version, err := client.servedVersion(ctx, s.opts.Kind)
		if err == nil {
			s.watchVersion(ctx, client, version, events)
		} else if ctx.Err() == nil {
			s.failed(err)
			events.wake()
		}
		// Also after a watch: a kind that discovery lists while requests for it fail must not become a busy loop.
		sleep(ctx, client.missingInterval)
	}
}

// watchVersion watches all namespaces until ctx ends, or the version is served no more or no longer the best.
func (s *Source[T]) watchVersion(ctx context.Context, client *Client, version string, events events) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gvr := schema.GroupVersionResource{Group: s.opts.Kind.Group, Version: version, Resource: s.opts.Kind.Resource}
	var wg sync.WaitGroup
	for _, namespace := range s.order {
		w := &namespaceWatch[T]{source: s, client: client, gvr: gvr, namespace: namespace, events: events, gone: cancel}
		wg.Go(func() { w.run(ctx) })
	}
	if len(s.opts.Kind.Versions) > 1 {
		wg.Go(func() {
			for sleep(ctx, client.versionInterval) {
				// An error says nothing about the version: the watches notice what it means for them.
				if served, err := client.servedVersion(ctx, s.opts.Kind); err == nil && served != version {
					cancel()
				}
			}
		})
	}
	wg.Wait()
}

// sleep waits for about d and reports whether ctx is still alive then. The jitter keeps sources from asking in step.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d - d/8 + rand.N(d/4))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
