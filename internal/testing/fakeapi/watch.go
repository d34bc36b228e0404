package fakeapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// bookmarkInterval is how often a watch that allows it is told the current revision.
	bookmarkInterval = time.Minute
	// watchDuration ends a watch that does not say when it wants to end.
	watchDuration = 30 * time.Minute
)

// watcher is one open watch.
type watcher struct {
	kind     Kind
	selected selection
	revision int // events up to this one have been sent
	out      *json.Encoder
	flush    func() error
}

func (c *Cluster) serveWatch(w http.ResponseWriter, r *http.Request, t target, selected selection) {
	query := r.URL.Query()
	bookmarks, _ := strconv.ParseBool(query.Get("allowWatchBookmarks"))
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	if initial && (!bookmarks || query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan)) {
		writeStatus(w, http.StatusUnprocessableEntity, 0)
		return
	}
	from := 0
	if rv := query.Get("resourceVersion"); rv != "" {
		var err error
		if from, err = strconv.Atoi(rv); err != nil {
			writeStatus(w, http.StatusBadRequest, 0)
			return
		}
	}
	duration := watchDuration
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		duration = time.Duration(seconds) * time.Second
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	x := &watcher{
		kind: t.kind, selected: selected, revision: from,
		out: json.NewEncoder(w), flush: http.NewResponseController(w).Flush,
	}
	var objects []*object
	var ended chan struct{}
	c.store.mu.Lock()
	collection := c.store.collection(t.kind.key())
	ended = collection.ended
	fromNow := initial || from == 0
	tooOld := !fromNow && from < collection.compacted
	if fromNow {
		objects, x.revision = collection.list(selected), c.store.revision
	}
	c.store.mu.Unlock()

	if tooOld {
		_ = x.send(watch.Error, status(http.StatusGone, 0))
		_ = x.flush()
		return
	}
	for _, o := range objects {
		if x.send(watch.Added, json.RawMessage(o.body)) != nil {
			return
		}
	}
	if initial && x.bookmark(x.revision, true) != nil {
		return
	}
	if x.flush() != nil {
		return
	}
	x.follow(r, c.store, ended, bookmarks, duration)
}

// follow sends what happens until the watch ends.
func (x *watcher) follow(r *http.Request, s *store, ended <-chan struct{}, bookmarks bool, duration time.Duration) {
	end := time.NewTimer(duration)
	defer end.Stop()
	var bookmark <-chan time.Time
	if bookmarks {
		ticker := time.NewTicker(bookmarkInterval)
		defer ticker.Stop()
		bookmark = ticker.C
	}
	for {
		s.mu.Lock()
		collection := s.collection(x.kind.key())
		events, changed := collection.since(x.revision), collection.changed
		missed := x.revision < collection.trimmed
		x.revision = s.revision
		s.mu.Unlock()
		if missed {
			_ = x.send(watch.Error, status(http.StatusGone, 0))
			return
		}
		for _, e := range events {
			kind, ok := x.selected.event(e)
			if ok && x.send(kind, json.RawMessage(e.object.body)) != nil {
				return
			}
		}
		if len(events) > 0 && x.flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-bookmark:
			if x.bookmark(x.revision, false) != nil || x.flush() != nil {
				return
			}
		case <-ended:
			return
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// since returns the events after a revision. The slice may be read without the lock: events are only ever appended.
func (c *collection) since(revision int) []event {
	for i := len(c.events); i > 0; i-- {
		if c.events[i-1].revision <= revision {
			return c.events[i:]
		}
	}
	return c.events
}

func (x *watcher) send(kind watch.EventType, object any) error {
	return x.out.Encode(map[string]any{"type": kind, "object": object})
}

// bookmark tells a revision, and, if so, that all initial events have been sent.
func (x *watcher) bookmark(revision int, initial bool) error {
	metadata := map[string]any{"resourceVersion": strconv.Itoa(revision)}
	if initial {
		metadata["annotations"] = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return x.send(watch.Bookmark, map[string]any{
		"apiVersion": x.kind.GroupVersion().String(), "kind": x.kind.Kind, "metadata": metadata,
	})
}
