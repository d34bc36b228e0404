package fakeapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
)

// firstRevision is above those that clients treat specially.
const firstRevision = 1000

// maxEvents is how many events of a collection are remembered for watches to begin from.
const maxEvents = 10_000

// store holds a cluster's objects, and what happened to them.
type store struct {
	mu          sync.Mutex // guards everything below, collections included
	revision    int
	collections map[string]*collection // by group/resource
}

// collection is all objects of a resource.
type collection struct {
	objects   map[string]*object // by namespace/name
	events    []event            // ordered by revision
	compacted int                // no watch may begin before this revision
	trimmed   int                // events up to this revision made room for others
	changed   chan struct{}      // closed and replaced with every event
	ended     chan struct{}      // closed and replaced to end the watches there are
}

// object is immutable.
type object struct {
	namespace, name string
	labels          map[string]string
	revision        int
	uid             types.UID
	created         string
	body            []byte
}

type event struct {
	kind     watch.EventType
	revision int
	object   *object
	previous *object // of Modified
}

func newStore() *store { return &store{revision: firstRevision, collections: map[string]*collection{}} }

// collection must be called with mu held.
func (s *store) collection(key string) *collection {
	c := s.collections[key]
	if c == nil {
		c = &collection{
			objects: map[string]*object{}, changed: make(chan struct{}), ended: make(chan struct{}), compacted: s.revision,
		}
		s.collections[key] = c
	}
	return c
}

// put creates or replaces an object, and returns it as stored.
func (s *store) put(key string, u *unstructured.Unstructured) (*object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collection(key)
	id := u.GetNamespace() + "/" + u.GetName()
	o := &object{
		namespace: u.GetNamespace(), name: u.GetName(), labels: u.GetLabels(), revision: s.revision + 1,
		uid: u.GetUID(), created: time.Now().UTC().Format(time.RFC3339),
	}
	previous := c.objects[id]
	switch {
	case previous != nil:
		o.created = previous.created
		if o.uid == "" {
			o.uid = previous.uid
		}
	case o.uid == "":
		o.uid = uuid.NewUUID()
	}
	content := maps.Clone(u.Object)
	metadata, _, _ := unstructured.NestedMap(u.Object, "metadata") // a copy
	metadata["uid"] = string(o.uid)
	metadata["resourceVersion"] = strconv.Itoa(o.revision)
	metadata["creationTimestamp"] = o.created
	content["metadata"] = metadata
	body, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("put %s %s: %w", key, id, err)
	}
	o.body = body
	s.revision++
	c.objects[id] = o
	e := event{kind: watch.Added, revision: o.revision, object: o}
	if previous != nil {
		e.kind, e.previous = watch.Modified, previous
	}
	c.record(e)
	return o, nil
}

// delete removes an object, and returns it. Not ok: there was none.
func (s *store) delete(key, namespace, name string) (*object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collection(key)
	o, ok := c.objects[namespace+"/"+name]
	if !ok {
		return nil, false
	}
	s.revision++
	delete(c.objects, namespace+"/"+name)
	last := *o
	last.revision = s.revision
	// The object that is sent carries the revision of its deletion.
	last.body = replaceRevision(o.body, s.revision)
	c.record(event{kind: watch.Deleted, revision: s.revision, object: &last})
	return &last, true
}

func replaceRevision(body []byte, revision int) []byte {
	var u unstructured.Unstructured
	if json.Unmarshal(body, &u.Object) != nil {
		return body
	}
	u.SetResourceVersion(strconv.Itoa(revision))
	replaced, err := json.Marshal(u.Object)
	if err != nil {
		return body
	}
	return replaced
}

func (c *collection) record(e event) {
	c.events = append(c.events, e)
	if len(c.events) > maxEvents {
		c.trimmed = c.events[maxEvents/2-1].revision
		c.compacted = max(c.compacted, c.trimmed)
		c.events = slices.Clone(c.events[maxEvents/2:])
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (s *store) get(key, namespace, name string) (*object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.collection(key).objects[namespace+"/"+name]
	return o, ok
}

// list returns the selected objects ordered by name, and the revision they are of.
func (s *store) list(key string, selected selection) ([]*object, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collection(key).list(selected), s.revision
}

func (c *collection) list(selected selection) []*object {
	objects := make([]*object, 0, len(c.objects))
	for _, o := range c.objects {
		if selected.matches(o) {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b *object) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return objects
}

// endWatches ends the watches of all collections whose key holds.
func (s *store) endWatches(holds func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.collections {
		if holds(key) {
			close(c.ended)
			c.ended = make(chan struct{})
		}
	}
}

// compact forgets all events.
func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// One further: clients that know the latest revision are to be too late as well.
	s.revision++
	for _, c := range s.collections {
		c.events, c.compacted = nil, s.revision
	}
}

// drop forgets a collection, and ends its watches.
func (s *store) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.collections[key]; c != nil {
		close(c.ended)
		delete(s.collections, key)
	}
}

// selection is what a list or watch is about.
type selection struct {
	namespace string // empty: all
	labels    labels.Selector
	fields    fields.Selector
}

func (s selection) matches(o *object) bool {
	return (s.namespace == "" || s.namespace == o.namespace) && s.labels.Matches(labels.Set(o.labels)) &&
		s.fields.Matches(fields.Set{"metadata.name": o.name, "metadata.namespace": o.namespace})
}

// event returns what e looks like to somebody who sees only what is selected. Not ok: nothing happened.
func (s selection) event(e event) (watch.EventType, bool) {
	now := s.matches(e.object)
	before := e.kind != watch.Added && now
	if e.previous != nil {
		before = s.matches(e.previous)
	}
	switch {
	case e.kind == watch.Deleted:
		return watch.Deleted, now
	case now && before:
		return watch.Modified, true
	case now:
		return watch.Added, true
	default:
		return watch.Deleted, before
	}
}
