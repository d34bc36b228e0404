package hub

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// store holds the views of a kind's objects under "namespace/name", and finds them by the members that they
// may concern.
type store[T any] struct {
	members func(T) []string

	mu       sync.RWMutex
	views    map[string]T
	byMember map[string]map[string]struct{} // member → keys of its views
}

func newStore[T any](members func(T) []string) *store[T] {
	return &store[T]{members: members, views: map[string]T{}, byMember: map[string]map[string]struct{}{}}
}

func (s *store[T]) get(key string) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	view, ok := s.views[key]
	return view, ok
}

// forMember returns the views that may concern a member, in the order of their keys.
func (s *store[T]) forMember(member string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	keys := s.byMember[member]
	if len(keys) == 0 {
		return nil
	}
	views := make([]T, 0, len(keys))
	for _, key := range sortedKeys(keys) {
		views = append(views, s.views[key])
	}
	return views
}

// inNamespace returns the views of a namespace's objects, in the order of their keys.
func (s *store[T]) inNamespace(namespace string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var views []T
	for _, key := range sortedKeys(s.views) {
		if strings.HasPrefix(key, namespace+"/") {
			views = append(views, s.views[key])
		}
	}
	return views
}

// allMembers returns every member that some view may concern.
func (s *store[T]) allMembers() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return sortedKeys(s.byMember)
}

// set stores a view, or removes it if view is nil, and returns the members whose views have changed by that.
// An equal view changes nothing, so a heartbeat costs its decoding and this comparison.
func (s *store[T]) set(key string, view *T) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setLocked(key, view)
}

func (s *store[T]) setLocked(key string, view *T) []string {
	old, had := s.views[key]
	if view == nil && !had || view != nil && had && reflect.DeepEqual(old, *view) {
		return nil
	}
	var changed []string
	if had {
		for _, member := range s.members(old) {
			changed = append(changed, member)
			delete(s.byMember[member], key)
			if len(s.byMember[member]) == 0 {
				delete(s.byMember, member)
			}
		}
		delete(s.views, key)
	}
	if view != nil {
		s.views[key] = *view
		for _, member := range s.members(*view) {
			changed = append(changed, member)
			if s.byMember[member] == nil {
				s.byMember[member] = map[string]struct{}{}
			}
			s.byMember[member][key] = struct{}{}
		}
	}
	return changed
}

// replace makes views the only ones of a namespace, or of all if it is empty.
func (s *store[T]) replace(namespace string, views map[string]*T) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed []string
	for key := range s.views {
		if _, stays := views[key]; !stays && (namespace == "" || strings.HasPrefix(key, namespace+"/")) {
			changed = append(changed, s.setLocked(key, nil)...)
		}
	}
	for key, view := range views {
		changed = append(changed, s.setLocked(key, view)...)
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}
