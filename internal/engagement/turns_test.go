package engagement

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// Those that wait are let in by turns, and those that give up are not waited for.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 2 {
			if err := turns.enter(ctx, "many"); err != nil {
				t.Fatal(err)
			}
		}
		entered := make(chan string, 16)
		wait := func(ctx context.Context, source string, n int) {
			go func() {
				if err := turns.enter(ctx, source); err == nil {
					entered <- fmt.Sprint(source, n)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("enter: %v", err)
				}
			}()
			synctest.Wait() // in line before the next one
		}
		for n := range 4 {
			wait(ctx, "many", n)
		}
		giveUp, stop := context.WithCancel(ctx)
		wait(giveUp, "few", 0)
		wait(giveUp, "gone", 0)
		wait(ctx, "few", 1)
		stop()
		synctest.Wait()
		var order []string
		for range 5 {
			turns.leave()
			synctest.Wait()
			order = append(order, <-entered)
		}
		if diff := cmp.Diff([]string{"many0", "few1", "many1", "many2", "many3"}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		for range 2 {
			turns.leave()
		}
		if turns.free != 2 || len(turns.waiting) > 0 || len(turns.order) > 0 {
			t.Errorf("after all have left: %+v", turns)
		}
	})
}

// A turn that comes as somebody gives up is not lost.
func TestTurnsAreNotLost(t *testing.T) {
	turns := newTurns(1)
	for range 2000 {
		if err := turns.enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- turns.enter(ctx, "b") }()
		go cancel()
		turns.leave()
		if <-ended == nil {
			turns.leave()
		}
		cancel()
	}
	if turns.free != 1 || len(turns.waiting) > 0 || len(turns.order) > 0 {
		t.Errorf("after all have left: %+v", turns)
	}
}
