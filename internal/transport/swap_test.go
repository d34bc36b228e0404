package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSwapEndsWatchesCleanly(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tr := newTransport(t, f.spec("a"), Options{})
	var ends []<-chan error
	for range 20 {
		ends = append(ends, ending(watch(t, tr, watchPath, "GET a")))
	}
	follow := ending(watch(t, tr, "/api/v1/namespaces/n/pods/p/log?follow=true", "GET a"))

	flipped := time.Now()
	tr.Swap(mustGeneration(t, f.spec("b"), Options{}))
	if took := time.Since(flipped); took > 100*time.Millisecond {
		t.Errorf("Swap took %v", took)
	}
	if got := mustGet(t, tr, "/api/v1/pods"); got != "GET b\n" {
		t.Errorf("the next request came as %q", got)
	}
	for _, end := range ends {
		if err := within(t, time.Minute, "the end of a watch", end); err != nil {
			t.Errorf("a watch ended with %v, want io.EOF", err)
		}
	}
	if age := time.Since(flipped); age < time.Second {
		t.Errorf("the watches ended after %v: reflectors would list anew", age)
	}
	select {
	case err := <-follow:
		t.Errorf("the log follow ended too: %v", err)
	default:
	}
	eventually(t, "the server to see the watches go", func() bool { return f.watching("a") == 1 })
}

func TestMatureWatchesEndStaggered(t *testing.T) {
	const stagger = 500 * time.Millisecond
	g := &Generation{opts: Options{Stagger: stagger}.withDefaults()}
	now := time.Now()
	var first, last time.Duration = time.Hour, 0
	for range 200 {
		x := &exchange{gen: g, kind: kindWatch, open: true, since: now.Add(-time.Minute)}
		d := x.endsAt(now).Sub(now)
		first, last = min(first, d), max(last, d)
	}
	if first < 0 || first > stagger/4 || last < stagger*3/4 || last > stagger {
		t.Errorf("200 watches end %v to %v after the flip", first, last)
	}
	for name, tc := range map[string]struct {
		x    *exchange
		want time.Duration
	}{
		"an opening watch":               {&exchange{kind: kindWatch}, 0},
		"a young watch":                  {&exchange{kind: kindWatch, open: true, since: now}, minWatchAge},
		"a watch-list before its end":    {&exchange{kind: kindWatch, open: true, since: now.Add(-time.Minute), initial: &initialEvents{}}, 5 * time.Minute},
		"a list":                         {&exchange{kind: kindList, open: true, since: now}, 2 * time.Minute},
		"a write that is not answered":   {&exchange{kind: kindWrite}, 30 * time.Second},
		"a log follow":                   {&exchange{kind: kindSession, open: true, since: now}, time.Hour},
		"an upgrade that is being made":  {&exchange{kind: kindUpgrade}, time.Hour},
		"an upgraded connection of some": {&exchange{kind: kindUpgrade, open: true, since: now.Add(-time.Hour)}, time.Hour},
	} {
		x := tc.x
		x.gen = g
		if got := x.endsAt(now).Sub(now); got != tc.want {
			t.Errorf("%s ends %v after the flip, want %v", name, got, tc.want)
		}
	}
}

// TestWatchBeingOpened swaps while the server has a watch's request and has not answered.
func TestWatchBeingOpened(t *testing.T) {
	f := newFleet(t)
	f.hold(t, "x")
	tr := newTransport(t, f.spec("a"), Options{})
	type answer struct {
		resp *http.Response
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		resp, err := tr.RoundTrip(get(t, watchPath+"&hold=x"))
		answers <- answer{resp, err}
	}()
	<-f.arrived
	f.mu.Lock()
	delete(f.holding, "x") // what comes from now on is not held
	f.mu.Unlock()
	tr.Swap(mustGeneration(t, f.spec("b"), Options{}))
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	defer a.resp.Body.Close()
	line, err := bufio.NewReader(a.resp.Body).ReadString('\n')
	if err != nil || line != "GET b\n" {
		t.Errorf("the watch was opened as %q, %v; want it on the new generation", line, err)
	}
}

// TestWatchListIsLeftUntilItsBookmark swaps while a watch-list sends its initial events.
func TestWatchListIsLeftUntilItsBookmark(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	release := f.hold(t, "bookmark")
	tr := newTransport(t, f.spec("a"), Options{Stagger: time.Millisecond})
	plain := ending(watch(t, tr, watchPath, "GET a"))
	r := watch(t, tr, watchPath+"&sendInitialEvents=true", "GET a")
	tr.Swap(mustGeneration(t, f.spec("b"), Options{}))
	if err := within(t, time.Minute, "the end of the plain watch", plain); err != nil {
		t.Error(err)
	}
	eventually(t, "the watch-list alone to be open", func() bool { return f.watching("a") == 1 })
	release()
	line, err := r.ReadString('\n')
	if err != nil || !strings.Contains(line, "initial-events-end") {
		t.Fatalf("got %q, %v", line, err)
	}
	bookmark := time.Now()
	if err := within(t, time.Minute, "the end of the watch-list", ending(r)); err != nil {
		t.Error(err)
	}
	if age := time.Since(bookmark); age < time.Second {
		t.Errorf("the watch-list ended %v after its bookmark: the reflector would list anew", age)
	}
}

func TestBookmarkIsFoundAcrossReads(t *testing.T) {
	const text = "some events before" + "k8s.io/initial-events-end" + "and after"
	for size := 1; size <= len(text); size++ {
		var i initialEvents
		at := -1
		for off := 0; off < len(text) && at < 0; off += size {
			if i.through([]byte(text[off:min(off+size, len(text))])) {
				at = off
			}
		}
		if at < 0 {
			t.Errorf("not found in reads of %d bytes", size)
		}
		i = initialEvents{}
		for range 20 {
			if i.through([]byte("k8s.io/initial-events-en")[:min(size, 24)]) {
				t.Errorf("found where it is not, in reads of %d bytes", size)
			}
		}
	}
}

func TestRequestsInFlightFinish(t *testing.T) {
	f := newFleet(t)
	release := f.hold(t, "x")
	tr := newTransport(t, f.spec("a"), Options{})
	done := make(chan string, 2)
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), method, member+"/api/v1/namespaces/n/pods?hold=x", strings.NewReader(" body"))
			if err != nil {
				done <- err.Error()
				return
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				done <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			done <- fmt.Sprint(string(b), err)
		}()
	}
	<-f.arrived
	<-f.arrived
	old := tr.Current()
	tr.Swap(mustGeneration(t, f.spec("b"), Options{}))
	release()
	got := map[string]bool{<-done: true, <-done: true}
	if want := map[string]bool{"POST a body\n<nil>": true, "GET a body\n<nil>": true}; cmp.Diff(want, got) != "" {
		t.Errorf("got %v", got)
	}
	old.wg.Wait() // its connections are closed now
	if n := f.requests("b"); n != 0 {
		t.Errorf("%d requests were sent again", n)
	}
}

func TestDrainTimeout(t *testing.T) {
	f := newFleet(t)
	f.hold(t, "x")
	o := Options{DrainTimeout: 50 * time.Millisecond}
	tr := newTransport(t, f.spec("a"), o)
	done := make(chan error, 1)
	go func() {
		r := get(t, "/api/v1/namespaces/n/pods?hold=x")
		r.Method = http.MethodPost
		_, err := tr.RoundTrip(r)
		done <- err
	}()
	<-f.arrived
	tr.Swap(mustGeneration(t, f.spec("b"), o))
	if err := within(t, time.Minute, "the drain", done); !errors.Is(err, ErrRetired) {
		t.Errorf("got %v", err)
	}
}

// TestQuickSwaps flips A to E at once, with watches opened in between: every one ends up on E, and nothing is left of the others.
func TestQuickSwaps(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tr := newTransport(t, f.spec("a"), Options{Stagger: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 10 { // like reflectors, and for ever
		wg.Go(func() {
			for ctx.Err() == nil {
				r := get(t, watchPath)
				resp, err := tr.RoundTrip(r.WithContext(ctx))
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("opening a watch: %v", err)
					}
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil && ctx.Err() == nil {
					t.Errorf("a watch ended with %v", err)
				}
				_ = resp.Body.Close()
			}
		})
	}
	eventually(t, "the watches to open", func() bool { return f.watching("a") == 10 })
	for _, token := range []string{"b", "c", "d", "e"} {
		tr.Swap(mustGeneration(t, f.spec(token), Options{Stagger: 10 * time.Millisecond}))
	}
	eventually(t, "all watches to move to the last generation", func() bool { return f.watching("e") == 10 })
	eventually(t, "no watch to be left on old generations", func() bool {
		return f.watching("a")+f.watching("b")+f.watching("c")+f.watching("d") == 0
	})
	eventually(t, "the old generations' connections to be closed", func() bool { return f.conns.Load() == 1 })
	cancel()
	wg.Wait()
}

// TestLostWatchEndsLikeAnEndedOne: a connection that breaks under a watch is no reason to list anew.
func TestLostWatchEndsLikeAnEndedOne(t *testing.T) {
	f := newFleet(t)
	tr := newTransport(t, f.spec("a"), Options{})
	w := ending(watch(t, tr, watchPath, "GET a"))
	follow := ending(watch(t, tr, "/api/v1/namespaces/n/pods/p/log?follow=true", "GET a"))
	f.CloseClientConnections()
	if err := within(t, time.Minute, "the watch to end", w); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	if err := within(t, time.Minute, "the log to end", follow); err == nil {
		t.Error("a log whose connection broke ended as if it were complete")
	}
}

func TestCallersCancelIsAnError(t *testing.T) {
	f := newFleet(t)
	tr := newTransport(t, f.spec("a"), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := tr.RoundTrip(get(t, watchPath).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	end := ending(resp.Body)
	cancel()
	if err := within(t, time.Minute, "the watch to end", end); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestClose(t *testing.T) {
	f := newFleet(t)
	f.hold(t, "x")
	tr := New(mustGeneration(t, f.spec("a"), Options{}), Options{})
	old := ending(watch(t, tr, "/api/v1/namespaces/n/pods/p/log?follow=true", "GET a"))
	tr.Swap(mustGeneration(t, f.spec("b"), Options{}))
	w := ending(watch(t, tr, watchPath, "GET b"))
	post := make(chan error, 1)
	go func() {
		r := get(t, "/api/v1/namespaces/n/pods?hold=x")
		r.Method = http.MethodPost
		_, err := tr.RoundTrip(r)
		post <- err
	}()
	<-f.arrived
	for range 2 {
		if err := tr.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := within(t, time.Minute, "the watch", w); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	if err := within(t, time.Minute, "the log", old); !errors.Is(err, ErrClosed) {
		t.Errorf("the log of an old generation ended with %v", err)
	}
	if err := within(t, time.Minute, "the write", post); !errors.Is(err, ErrClosed) {
		t.Errorf("the write ended with %v", err)
	}
	eventually(t, "connections to be closed", func() bool { return f.conns.Load() == 0 })
	if _, err := tr.RoundTrip(get(t, "/api")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	late := mustGeneration(t, f.spec("c"), Options{})
	tr.Swap(late)
	if _, err := late.RoundTrip(get(t, "/api")); !errors.Is(err, ErrClosed) {
		t.Errorf("a generation swapped in after Close: %v", err)
	}
}

func TestProvingAGeneration(t *testing.T) {
	f := newFleet(t)
	g := mustGeneration(t, f.spec("new"), Options{})
	if got := mustGet(t, g, "/readyz"); got != "GET new\n" {
		t.Errorf("got %q", got)
	}
	g.Close()
	g.Close()
	eventually(t, "its connection to be closed", func() bool { return f.conns.Load() == 0 })
	if _, err := g.RoundTrip(get(t, "/readyz")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	proved := mustGeneration(t, f.spec("proved"), Options{})
	mustGet(t, proved, "/readyz")
	tr := newTransport(t, f.spec("a"), Options{})
	tr.Swap(proved)
	mustGet(t, tr, "/api")
	if n := f.requests("proved"); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestEndpointChanges moves to another server with another authority, and to a path.
func TestEndpointChanges(t *testing.T) {
	t.Parallel()
	a, b := newFleet(t), newFleet(t)
	tr := newTransport(t, a.spec("a"), Options{Stagger: time.Millisecond})
	w := ending(watch(t, tr, watchPath, "GET a"))
	spec := b.spec("b")
	spec.Endpoint.Server += "/cluster1"
	tr.Swap(mustGeneration(t, spec, Options{}))
	if err := within(t, time.Minute, "the watch to end", w); err != nil {
		t.Error(err)
	}
	if got := mustGet(t, tr, "/api"); got != "GET b\n" {
		t.Errorf("got %q", got)
	}
	eventually(t, "the old server's connections to be closed", func() bool { return a.conns.Load() == 0 })
	if !tr.Current().Spec().Equal(spec) {
		t.Error("Current is not the new generation")
	}
}

func TestSwapToTheSameGeneration(t *testing.T) {
	f := newFleet(t)
	tr := newTransport(t, f.spec("a"), Options{})
	mustGet(t, tr, "/api")
	tr.Swap(tr.Current())
	mustGet(t, tr, "/api")
}
