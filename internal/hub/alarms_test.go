package hub

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rung remembers which members changed when.
type rung struct {
	mu    sync.Mutex
	start time.Time
	calls map[string][]time.Duration
}

func (r *rung) changed(members []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, member := range slices.Sorted(slices.Values(members)) {
		r.calls[member] = append(r.calls[member], time.Since(r.start))
	}
}

func (r *rung) wake() {}

func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		alarms := NewAlarms()
		r := &rung{start: time.Now(), calls: map[string][]time.Duration{}}
		at := func(d time.Duration) time.Time { return r.start.Add(d) }
		var wg sync.WaitGroup
		wg.Go(func() { alarms.run(ctx, nil, r) })

		alarms.Set("late", at(2*time.Hour))
		alarms.Set("soon", at(time.Second))
		alarms.Set("moved", at(time.Second))
		alarms.Set("moved", at(time.Minute))
		alarms.Set("cancelled", at(time.Second))
		alarms.Set("cancelled", time.Time{})
		alarms.Set("past", at(-time.Second))
		time.Sleep(3 * time.Hour)
		alarms.Set("again", at(3*time.Hour+time.Second))
		time.Sleep(time.Hour)
		cancel()
		wg.Wait()
		want := map[string][]time.Duration{
			"late": {2 * time.Hour}, "soon": {time.Second}, "moved": {time.Minute}, "past": {0}, "again": {3*time.Hour + time.Second},
		}
		if diff := cmp.Diff(want, r.calls); diff != "" {
			t.Errorf("alarms (-want +got):\n%s", diff)
		}
	})
}
