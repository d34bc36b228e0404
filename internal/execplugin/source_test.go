package execplugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

// script is what is run instead of a process: the nth run's answer, after it has taken its time.
type script struct {
	takes time.Duration
	reply func(n int) (*Credential, error)
	runs  atomic.Int64
	now   atomic.Int64 // running
	most  atomic.Int64 // at once
}

func (s *script) execute(ctx context.Context, _ connection.Exec, _ connection.Endpoint) (*Credential, error) {
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	n := int(s.runs.Add(1))
	select {
	case <-time.After(s.takes):
		return s.reply(n)
	case <-ctx.Done():
		return nil, &Error{Command: "plugin", Reason: ReasonTimeout, Detail: "did not end in time and was killed"}
	}
}

func (s *script) runner(o Options) *Runner {
	r := NewRunner(o)
	r.execute = s.execute
	return r
}

func token(n int, life time.Duration) *Credential {
	c := &Credential{Token: connection.NewSecret(fmt.Sprintf("token-%d", n))}
	if life > 0 {
		c.Expiry = time.Now().Add(life)
	}
	return c
}

func plugins(n int) []connection.Exec {
	out := make([]connection.Exec, n)
	for i := range out {
		out[i] = connection.Exec{Command: fmt.Sprintf("plugin-%d", i)}
	}
	return out
}

func mustClose(t *testing.T, r *Runner) {
	t.Helper()
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOneRunPerCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: time.Second, reply: func(n int) (*Credential, error) { return token(n, 0), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		p := plugins(2)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 100 { // fifty callers for each of two credentials, through different sources
			wg.Go(func() {
				src := r.Source(p[i%2], connection.Endpoint{Server: fmt.Sprint("https://", i)})
				if c, err := src.Credential(t.Context()); err != nil || c.Token.IsZero() {
					t.Errorf("got %v, %v", c, err)
				}
			})
		}
		wg.Wait()
		if n := s.runs.Load(); n != 2 {
			t.Errorf("%d runs for two credentials", n)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("two credentials took %v: they did not run at the same time", took)
		}
	})
}

func TestEndpointCountsOnlyWhereThePluginSeesIt(t *testing.T) {
	r := (&script{}).runner(Options{})
	p := plugins(1)[0]
	a, b := connection.Endpoint{Server: "https://a"}, connection.Endpoint{Server: "https://b"}
	if r.Source(p, a).shared != r.Source(p, b).shared {
		t.Error("a plugin that does not see the endpoint runs once for each")
	}
	p.ProvideClusterInfo = true
	if r.Source(p, a).shared == r.Source(p, b).shared {
		t.Error("a plugin that sees the endpoint shares its credential among endpoints")
	}
}

func TestAtMostEightAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: time.Second, reply: func(n int) (*Credential, error) { return token(n, 0), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		var wg sync.WaitGroup
		for _, p := range plugins(40) {
			wg.Go(func() {
				if _, err := r.Source(p, connection.Endpoint{}).Credential(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most := s.most.Load(); most != 8 {
			t.Errorf("%d plugins ran at once", most)
		}
	})
}

// TestHangingPluginsLeaveRoom has many clusters whose plugins hang: one that works is not kept waiting by them.
func TestHangingPluginsLeaveRoom(t *testing.T) {
	many := func(n int, command string) []connection.Exec { // one command for n clusters
		out := make([]connection.Exec, n)
		for i := range out {
			out[i] = connection.Exec{Command: command, Args: []connection.Secret{connection.NewSecret(fmt.Sprint(i))}}
		}
		return out
	}
	for _, test := range []struct {
		name    string
		hanging []connection.Exec
		after   time.Duration
		good    string // its command
	}{
		{"the first runs of one command", many(16, "bad"), time.Second, "good"},
		{"retries of one command", many(16, "bad"), 80 * time.Second, "good"},
		{"retries of the same command", many(16, "plugin"), 80 * time.Second, "plugin"},
		{"retries of many commands", plugins(16), 40 * time.Second, "good"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := &script{takes: time.Hour}
				good := &script{takes: time.Second, reply: func(n int) (*Credential, error) { return token(n, 0), nil }}
				works := connection.Exec{Command: test.good, Args: []connection.Secret{connection.NewSecret("works")}}
				r := NewRunner(Options{})
				r.execute = func(ctx context.Context, e connection.Exec, ep connection.Endpoint) (*Credential, error) {
					if len(e.Args) > 0 && e.Args[0].Equal(works.Args[0]) {
						return good.execute(ctx, e, ep)
					}
					return bad.execute(ctx, e, ep)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for _, p := range test.hanging {
					src := r.Source(p, connection.Endpoint{})
					wg.Go(func() {
						for ctx.Err() == nil {
							if _, err := src.Credential(ctx); err == nil {
								t.Error("a hanging plugin gave a credential")
							}
							time.Sleep(time.Second)
						}
					})
				}
				time.Sleep(test.after)
				synctest.Wait()
				if bad.now.Load() == 0 {
					t.Error("none hangs at the moment")
				}
				start := time.Now()
				if _, err := r.Source(works, connection.Endpoint{}).Credential(ctx); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("it took %v", took)
				}
				cancel()
				wg.Wait()
				mustClose(t, r)
				if n := len(r.lanes); n != 0 {
					t.Errorf("%d lanes are kept", n)
				}
			})
		})
	}
}

func TestRefreshBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: time.Second, reply: func(n int) (*Credential, error) { return token(n, 10*time.Minute), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		src := r.Source(plugins(1)[0], connection.Endpoint{})
		want := 1
		for at := range 40 * 60 { // a request each second for 40 minutes
			begin := time.Now()
			c, err := src.Credential(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if at > 0 && time.Since(begin) != 0 {
				t.Fatalf("a request waited %v for the plugin", time.Since(begin))
			}
			if !c.validAt(time.Now()) {
				t.Fatal("an expired credential was handed out")
			}
			time.Sleep(time.Second)
		}
		// Each is replaced after eight or nine tenths of its ten minutes.
		want = 40 / 9
		if n := int(s.runs.Load()); n < want || n > want+2 {
			t.Errorf("%d runs in 40 minutes, want about %d", n, want)
		}
	})
}

func TestBackoffWhileThePluginFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &Error{Command: "plugin", Reason: ReasonExit, Detail: "ended with exit status 1"}
		s := &script{reply: func(int) (*Credential, error) { return nil, broken }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		src := r.Source(plugins(1)[0], connection.Endpoint{})
		for range 3600 { // a request each second for an hour
			if _, err := src.Credential(t.Context()); !errors.Is(err, broken) {
				t.Fatalf("got %v", err)
			}
			time.Sleep(time.Second)
		}
		// 1, 2, 4, … 256s and then 300s at most, each half of it at least.
		if n := s.runs.Load(); n < 18 || n > 38 {
			t.Errorf("%d runs in an hour", n)
		}
		s.reply = func(n int) (*Credential, error) { return token(n, 0), nil }
		time.Sleep(maxBackoff)
		if _, err := src.Credential(t.Context()); err != nil {
			t.Errorf("it still fails: %v", err)
		}
	})
}

// TestFailingRefreshKeepsTheCredential: a plugin that fails harms nobody until the credential has expired.
func TestFailingRefreshKeepsTheCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &Error{Command: "plugin", Reason: ReasonExit, Detail: "ended with exit status 1"}
		s := &script{reply: func(n int) (*Credential, error) {
			if n == 1 {
				return token(n, 10*time.Minute), nil
			}
			return nil, broken
		}}
		r := s.runner(Options{})
		defer mustClose(t, r)
		src := r.Source(plugins(1)[0], connection.Endpoint{})
		for range 10 * 60 {
			if _, err := src.Credential(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := s.runs.Load(); n < 3 {
			t.Errorf("%d runs: it was not refreshed", n)
		}
		if _, err := src.Credential(t.Context()); !errors.Is(err, broken) {
			t.Errorf("after its end: %v", err)
		}
	})
}

func TestRefreshAfterUnauthorized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := 1 // what the plugin returns
		s := &script{takes: time.Second, reply: func(int) (*Credential, error) { return token(current, 0), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		src := r.Source(plugins(1)[0], connection.Endpoint{})
		first, err := src.Credential(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		current = 2
		var wg sync.WaitGroup
		for range 50 { // many requests are refused at once: one run
			wg.Go(func() {
				if c, err := src.Refresh(t.Context(), first); err != nil || c.Equal(first) {
					t.Errorf("got %v, %v", c, err)
				}
			})
		}
		wg.Wait()
		if n := s.runs.Load(); n != 2 {
			t.Errorf("%d runs", n)
		}
		second, _ := src.Credential(t.Context())
		if c, err := src.Refresh(t.Context(), first); err != nil || c != second {
			t.Errorf("a latecomer with the old credential: got %v, %v", c, err)
		}

		// The server refuses what the plugin insists on.
		for range 3600 {
			if _, err := src.Refresh(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := s.runs.Load() - 2; n < 10 || n > 32 {
			t.Errorf("%d runs in an hour of refusals", n)
		}
	})
}

func TestExpiredOnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{reply: func(n int) (*Credential, error) {
			c := token(n, 0)
			c.Expiry = time.Now().Add(-time.Minute)
			return c, nil
		}}
		r := s.runner(Options{})
		defer mustClose(t, r)
		var e *Error
		if _, err := r.Source(plugins(1)[0], connection.Endpoint{}).Credential(t.Context()); !errors.As(err, &e) || e.Reason != ReasonExpired {
			t.Errorf("got %v", err)
		}
	})
}

func TestCallerLeavesEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: 12 * time.Second, reply: func(n int) (*Credential, error) { return token(n, 0), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		src := r.Source(plugins(1)[0], connection.Endpoint{})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := src.Credential(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(10 * time.Second)
		begin := time.Now()
		if _, err := src.Credential(t.Context()); err != nil || time.Since(begin) != 0 || s.runs.Load() != 1 {
			t.Errorf("the run was not used: %v after %v and %d runs", err, time.Since(begin), s.runs.Load())
		}
	})
}

func TestCloseEndsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: time.Hour}
		r := s.runner(Options{Timeout: time.Hour})
		p := plugins(2)
		a, again, b := r.Source(p[0], connection.Endpoint{}), r.Source(p[0], connection.Endpoint{}), r.Source(p[1], connection.Endpoint{})
		errs := make(chan error, 2)
		for _, src := range []*Source{a, b} {
			go func() {
				_, err := src.Credential(t.Context())
				errs <- err
			}()
		}
		synctest.Wait()
		a.Close()
		a.Close()
		synctest.Wait()
		if n := s.now.Load(); n != 2 {
			t.Errorf("closing one of two sources ended the run: %d run", n)
		}
		again.Close()
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if n := s.now.Load(); n != 1 {
			t.Errorf("%d run after the first was closed", n)
		}
		mustClose(t, r)
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		if n := s.now.Load(); n != 0 {
			t.Errorf("%d run after the runner was closed", n)
		}
		if _, err := b.Credential(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := r.Source(p[1], connection.Endpoint{}).Credential(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		if n := len(r.sources); n != 0 {
			t.Errorf("%d sources are kept", n)
		}
	})
}

// TestRunnerClosedBeforeTheRunBegins: between a source's look at its context and the start of a run the runner may be closed.
func TestRunnerClosedBeforeTheRunBegins(t *testing.T) {
	r := (&script{}).runner(Options{})
	src := r.Source(plugins(1)[0], connection.Endpoint{})
	r.mu.Lock()
	r.closed = true // as Close does before it ends the sources
	r.mu.Unlock()
	if c, err := src.Credential(t.Context()); c != nil || !errors.Is(err, ErrClosed) {
		t.Errorf("Credential: got %v, %v", c, err)
	}
	if c, err := src.Refresh(t.Context(), token(1, 0)); c != nil || !errors.Is(err, ErrClosed) {
		t.Errorf("Refresh: got %v, %v", c, err)
	}
	src.Close()
}

// TestRefusalsOfOneServerDelayNoOther: two clusters share a plugin, and the server of one refuses every credential.
func TestRefusalsOfOneServerDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := 1 // what the plugin returns
		s := &script{reply: func(int) (*Credential, error) { return token(current, 0), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		p := plugins(1)[0]
		hostile, honest := r.Source(p, connection.Endpoint{}), r.Source(p, connection.Endpoint{})
		first, err := honest.Credential(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3600 { // to the longest wait
			if c, err := hostile.Refresh(t.Context(), first); err != nil || !c.Equal(first) {
				t.Fatalf("got %v, %v", c, err)
			}
			time.Sleep(time.Second)
		}
		current = 2
		if c, err := honest.Refresh(t.Context(), first); err != nil || c.Equal(first) {
			t.Errorf("the honest server's cluster: got %v, %v", c, err)
		}
	})
}

// TestClosingEndsTheWait: whoever waits through a closed source stops, though the run goes on for another one.
func TestClosingEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: 10 * time.Second, reply: func(n int) (*Credential, error) { return token(n, 0), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		p := plugins(1)[0]
		old, next := r.Source(p, connection.Endpoint{}), r.Source(p, connection.Endpoint{})
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := old.Credential(t.Context()); !errors.Is(err, ErrClosed) || time.Since(began) != time.Second {
				t.Errorf("through the closed one: %v after %v", err, time.Since(began))
			}
		})
		wg.Go(func() {
			if _, err := next.Credential(t.Context()); err != nil {
				t.Errorf("through the other: %v", err)
			}
		})
		time.Sleep(time.Second)
		old.Close()
		wg.Wait()
		if n := s.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestCredentialsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{reply: func(n int) (*Credential, error) { return token(n, time.Minute), nil }}
		r := s.runner(Options{})
		defer mustClose(t, r)
		src := r.Source(plugins(1)[0], connection.Endpoint{})
		first, err := src.Credential(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second, err := src.Refresh(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		if !first.Before(second) || second.Before(first) || first.Before(first) {
			t.Error("they are not in the order in which they came")
		}
	})
}
