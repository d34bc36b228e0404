package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// step is a part of the tour. Its run does something to the fleet and returns when the fleet has answered as it
// should, with a sentence about it, or an error.
type step struct {
	name  string // in reports
	title string // for people
	run   func(ctx context.Context) (string, error)
}

// stepLimit bounds each step.
const stepLimit = 30 * time.Second

// result is how a step went, as "-o json" prints it.
type result struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Took  string `json:"took"`
	Error string `json:"error,omitempty"`
}

func resultOf(name string, took time.Duration, err error) result {
	r := result{Name: name, OK: err == nil, Took: took.Round(time.Millisecond).String()}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// listed is one cluster as "-o json" prints it.
type listed struct {
	Name    string `json:"name"`
	Backend string `json:"backend"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Version string `json:"version"`
}

// report is the document that "-o json" prints.
type report struct {
	Clusters []listed `json:"clusters"`
	Steps    []result `json:"steps"`
}

// list returns the fleet as the report has it.
func (t table) list() []listed {
	list := []listed{}
	for _, r := range t.rows {
		list = append(list, listed{r.name, r.backend, string(r.state), string(r.reason), r.version})
	}
	return list
}

// tour shows what a mixed fleet does, step by step.
type tour struct {
	stage  *stage
	fleet  *fleet
	screen *screen
	// pause is how long a reader gets between two steps.
	pause time.Duration

	// before is the fleet as it stood before anything was removed.
	before []listed
	// working are the clusters that are expected to work.
	working []multicluster.ClusterName
	// tokens are the credentials that were handed out.
	tokens map[multicluster.ClusterName]*controlplane.Token
	// snacks counts the ConfigMaps that were created.
	snacks int
}

// run takes all steps, also after one has failed, and reports on each. It ends early with ctx.
func (t *tour) run(ctx context.Context) (report, error) {
	r := report{Steps: []result{}}
	steps := t.steps()
	var failed []string
	for i, s := range steps {
		t.screen.say("")
		t.screen.say("[%d/%d] %s", i+1, len(steps), s.title)
		began := time.Now()
		stepCtx, cancel := context.WithTimeout(ctx, stepLimit)
		said, err := s.run(stepCtx)
		cancel()
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		r.Steps = append(r.Steps, resultOf(s.name, time.Since(began), err))
		if err == nil {
			t.screen.say("  ok: %s", said)
		} else {
			failed = append(failed, s.name)
			t.screen.say("  FAILED: %v", err)
		}
		t.screen.refresh()
		if t.pause > 0 && i < len(steps)-1 {
			select {
			case <-time.After(t.pause):
			case <-ctx.Done():
			}
		}
	}
	if t.before == nil { // nothing was removed
		t.before = t.fleet.table().list()
	}
	r.Clusters = t.before
	if len(failed) > 0 {
		return r, fmt.Errorf("%d of %d steps failed: %s", len(failed), len(steps), strings.Join(failed, ", "))
	}
	return r, nil
}

// until waits until done reports true, and returns how long that took. An error of done ends the wait. what is
// what is waited for.
func until(ctx context.Context, what string, done func() (bool, error)) (time.Duration, error) {
	began := time.Now()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ok, err := done()
		switch {
		case ok:
			return time.Since(began), nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return 0, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: not so after %s", what, time.Since(began).Round(time.Millisecond))
		}
	}
}
