package hub

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
)

// script is a source without a hub, which does what the test says.
type script struct {
	*Source[string]
	steps chan func(*Source[string], events)
}

func newScript(namespaces ...string) *script {
	return &script{
		Source: NewSource(SourceOptions[string]{
			Kind: Secrets(), Namespaces: namespaces, Members: func(member string) []string { return []string{member} }}),
		steps: make(chan func(*Source[string], events)),
	}
}

func (s *script) run(ctx context.Context, _ *Client, e events) {
	for {
		select {
		case <-ctx.Done():
			return
		case step := <-s.steps:
			step(s.Source, e)
			e.wake()
		}
	}
}

func (s *script) list(namespace string, members ...string) {
	s.steps <- func(s *Source[string], e events) {
		views := map[string]*string{}
		for _, member := range members {
			views[member] = &member
		}
		e.changed(s.store.replace(namespace, views))
		s.well(namespace)
	}
}

// journal writes down what a loop does.
type journal struct {
	backends.Engager
	lines []string
}

func (j *journal) Synced() { j.lines = append(j.lines, "synced") }

func (j *journal) Report(h backends.Health) { j.lines = append(j.lines, "health "+string(h.Reason)) }

func (j *journal) reconcile(_ context.Context, member string) {
	j.lines = append(j.lines, "reconcile "+member)
}

// expect lets the loop do what it can and compares what it did since the last time.
func (j *journal) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, j.lines); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	j.lines = nil
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, secrets := newScript(""), newScript("n", "m")
		var j journal
		loop := Loop{Sources: []Watcher{objects, secrets}, Reconcile: j.reconcile, Engager: &j}
		client, err := Connect(&testConfig)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			loop.Run(ctx, client)
		}()
		j.expect(t, "at first", "health Starting")

		objects.list("", "n/a", "m/b")
		j.expect(t, "members are not reconciled while a watch has not answered", "health Starting")
		secrets.list("n", "n/a")
		j.expect(t, "nor while another one has not", "health Starting")

		secrets.steps <- func(s *Source[string], e events) { s.failed(errNotServed, "m") }
		j.expect(t, "a failure is an answer, though not a list", "health KindNotServed", "reconcile m/b", "reconcile n/a")

		secrets.list("m")
		j.expect(t, "a first list may concern everybody", "health ", "reconcile m/b", "reconcile n/a", "synced")

		objects.steps <- func(s *Source[string], e events) { e.changed([]string{"n/a", "n/a"}) }
		j.expect(t, "afterwards only what changes is reconciled, once", "reconcile n/a")

		objects.list("", "n/a")
		j.expect(t, "what is no longer listed has changed", "reconcile m/b")

		secrets.steps <- func(s *Source[string], e events) { s.failed(errNotServed) }
		j.expect(t, "trouble is reported, and no member is touched", "health KindNotServed")
		secrets.list("n", "n/a")
		j.expect(t, "an equal list says nothing but that one watch fewer is in trouble", "health KindNotServed")
		secrets.list("m")
		j.expect(t, "all is well again", "health ")

		cancel()
		<-done
	})
}
