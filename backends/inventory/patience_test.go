package inventory

import (
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type step struct {
		after       time.Duration // since start
		has         bool
		trouble     bool
		wantTooLong bool
		wantAgain   time.Duration // since start; zero: never
	}
	tests := map[string]struct {
		limit time.Duration
		steps []step
	}{
		"for ever":         {0, []step{{}, {after: 1000 * time.Hour}}},
		"the limit counts": {time.Minute, []step{{wantAgain: time.Minute}, {after: 59 * time.Second, wantAgain: time.Minute}, {after: time.Minute, wantTooLong: true}, {after: time.Hour, wantTooLong: true}}},
		"an interruption starts anew": {time.Minute, []step{{wantAgain: time.Minute}, {after: 59 * time.Second, has: true},
			{after: time.Minute, wantAgain: 2 * time.Minute}, {after: 2 * time.Minute, wantTooLong: true}}},
		"while the hub is away nothing counts": {time.Minute, []step{{wantAgain: time.Minute}, {after: time.Hour, trouble: true, wantAgain: time.Hour + time.Minute},
			{after: time.Hour + 59*time.Second, wantAgain: time.Hour + time.Minute}, {after: time.Hour + time.Minute, wantTooLong: true}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := patience{limit: test.limit}
			for i, step := range test.steps {
				if step.has {
					p.has("m")
					continue
				}
				tooLong, again := p.lacks("m", start.Add(step.after), step.trouble)
				var wantAgain time.Time
				if step.wantAgain > 0 {
					wantAgain = start.Add(step.wantAgain)
				}
				if tooLong != step.wantTooLong || !again.Equal(wantAgain) {
					t.Errorf("step %d: too long %t, again %s, want %t and %s", i, tooLong, again, step.wantTooLong, wantAgain)
				}
			}
		})
	}
}
