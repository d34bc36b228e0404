package aggregate

import (
	"context"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
)

const (
	// eventBurst and eventEvery bound the Events of one cluster: so many at once, and then one in so long.
	eventBurst = 10
	eventEvery = time.Minute
)

// recordEvents puts an Event on the inventory object of each cluster whose state or reason changes, until ctx ends.
// A cluster that changes too fast gets Events for some of its states only.
func (p *Provider) recordEvents(ctx context.Context) {
	type told struct {
		state   backends.State
		reason  backends.Reason
		limiter *rate.Limiter
	}
	last := map[multicluster.ClusterName]*told{}
	for change := range p.Subscribe(ctx) {
		before := last[change.Name]
		if change.Gone {
			delete(last, change.Name)
			continue
		}
		if before == nil {
			before = &told{limiter: rate.NewLimiter(rate.Every(eventEvery), eventBurst)}
			last[change.Name] = before
		}
		recorder := p.eventsOf(change.Backend)
		if recorder == nil || change.Source.Kind == "" || before.state == change.State && before.reason == change.Reason {
			continue
		}
		if !before.limiter.Allow() {
			continue // the next change tells it, if it is true still
		}
		before.state, before.reason = change.State, change.Reason
		recordEvent(recorder, change.ClusterStatus)
	}
}

func (p *Provider) eventsOf(backend string) events.EventRecorder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.backends[backend]; s != nil {
		return s.events
	}
	return nil
}

// recordEvent puts an Event about a cluster's status on its inventory object.
func recordEvent(recorder events.EventRecorder, c ClusterStatus) {
	kind := corev1.EventTypeWarning
	switch c.State {
	case backends.Pending, backends.Connecting, backends.Engaged, backends.Shadowed, backends.Draining:
		kind = corev1.EventTypeNormal
		if c.Attempt > 0 {
			kind = corev1.EventTypeWarning
		}
	}
	object := &corev1.ObjectReference{
		APIVersion: c.Source.APIVersion, Kind: c.Source.Kind, Namespace: c.Source.Namespace,
		Name: c.Source.Name, UID: types.UID(c.Source.UID),
	}
	note := "cluster " + c.Name.String() + " is " + string(c.State)
	if c.Message != "" {
		note += ": " + c.Message
	}
	recorder.Eventf(object, nil, kind, string(c.Reason), string(c.State), "%s", truncate(note))
}

// truncate cuts a note to what the API takes (events.k8s.io/v1: 1024 bytes).
func truncate(note string) string {
	const limit = 1000
	if len(note) <= limit {
		return note
	}
	return strings.ToValidUTF8(note[:limit], "") + " …"
}
