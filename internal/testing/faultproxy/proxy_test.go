package faultproxy

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends back what it gets, behind its name.
func echo(t testing.TB, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				_, _ = io.WriteString(c, name)
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

func start(t testing.TB, target string, options Options) *Proxy {
	t.Helper()
	p, err := Start(target, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func setMode(t testing.TB, p *Proxy, mode Mode) {
	t.Helper()
	if err := p.SetMode(mode); err != nil {
		t.Fatal(err)
	}
}

func dial(t testing.TB, p *Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// expect reads exactly s.
func expect(t testing.TB, c net.Conn, s string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, len(s))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != s {
		t.Fatalf("read %q, %v; want %q", got[:n], err, s)
	}
}

// expectSilence reads nothing for a while.
func expectSilence(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := c.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func expectReset(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		n, err := c.Read(make([]byte, 1))
		if n > 0 {
			continue // sent before the reset
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("read error %v, want a reset", err)
		}
		return
	}
}

// expectResetDial connects to a proxy that resets, which shows while connecting or afterwards.
func expectResetDial(t testing.TB, p *Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer c.Close() //nolint:errcheck // reset by now
		expectReset(t, c)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("dial: %v, want a reset", err)
	}
}

func TestPass(t *testing.T) {
	p := start(t, echo(t, ""), Options{})
	c := dial(t, p)
	want := make([]byte, 8<<20)
	_, _ = rand.Read(want)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = c.Write(want)
		_ = c.CloseWrite()
	})
	got, err := io.ReadAll(c)
	wg.Wait()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v; want the %d that were sent", len(got), err, len(want))
	}
	waitFor(t, func() bool { return p.Stats() == Stats{Accepted: 1} })
}

func TestRefuse(t *testing.T) {
	p := start(t, echo(t, "hello"), Options{})
	old := dial(t, p)
	expect(t, old, "hello")
	for range 3 {
		setMode(t, p, Refuse)
		setMode(t, p, Refuse)
		if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial: %v, want refused", err)
		}
		send(t, old, "still here")
		expect(t, old, "still here")
		setMode(t, p, Pass)
		expect(t, dial(t, p), "hello")
	}
}

func TestBlackhole(t *testing.T) {
	p := start(t, echo(t, "hello"), Options{})
	old := dial(t, p)
	expect(t, old, "hello")
	setMode(t, p, Blackhole)
	fresh := dial(t, p)
	send(t, old, "one")
	send(t, fresh, "two")
	expectSilence(t, old)
	expectSilence(t, fresh)
	setMode(t, p, Pass)
	expect(t, old, "one")
	expect(t, fresh, "hellotwo")
}

func TestHalfOpen(t *testing.T) {
	p := start(t, echo(t, "hello"), Options{})
	old := dial(t, p)
	expect(t, old, "hello")
	setMode(t, p, HalfOpen)
	send(t, old, "lost")
	expectSilence(t, old)
	fresh := dial(t, p)
	expect(t, fresh, "hello")
	setMode(t, p, Pass)
	send(t, old, "lost as well")
	expectSilence(t, old)
	send(t, fresh, "there")
	expect(t, fresh, "there")
}

func TestReset(t *testing.T) {
	p := start(t, echo(t, "hello"), Options{})
	old := dial(t, p)
	expect(t, old, "hello")
	setMode(t, p, Reset)
	expectReset(t, old)
	expectResetDial(t, p)
	setMode(t, p, Pass)
	c := dial(t, p)
	expect(t, c, "hello")
	p.ResetConnections()
	expectReset(t, c)
	expect(t, dial(t, p), "hello")
}

func TestSetTarget(t *testing.T) {
	p := start(t, echo(t, "a"), Options{})
	a := dial(t, p)
	expect(t, a, "a")
	p.SetTarget(echo(t, "b"))
	expect(t, dial(t, p), "b")
	send(t, a, "same")
	expect(t, a, "same")
}

func TestUnreachableTarget(t *testing.T) {
	nobody := start(t, "127.0.0.1:1", Options{Mode: Refuse})
	p := start(t, nobody.Addr(), Options{})
	expectResetDial(t, p)
}

// A round trip takes twice the delay, the first one twice as long for the connect, and many at once take no longer.
func TestDelay(t *testing.T) {
	const delay = 40 * time.Millisecond
	p := start(t, echo(t, ""), Options{Delay: delay})
	begin := time.Now()
	c := dial(t, p)
	send(t, c, "x")
	expect(t, c, "x")
	if took := time.Since(begin); took < 4*delay {
		t.Errorf("connect and first round trip took %v, want at least %v", took, 4*delay)
	}
	begin = time.Now()
	send(t, c, "y")
	expect(t, c, "y")
	if took := time.Since(begin); took < 2*delay {
		t.Errorf("a round trip took %v, want at least %v", took, 2*delay)
	}

	begin = time.Now()
	const pieces, size = 100, 10_000
	var wg sync.WaitGroup
	wg.Go(func() {
		for range pieces {
			_, _ = c.Write(make([]byte, size))
		}
	})
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, pieces*size)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if took := time.Since(begin); took > pieces*delay {
		t.Errorf("%d pieces took %v: one after the other", pieces, took)
	}
	p.SetDelay(0)
	send(t, c, "z")
	expect(t, c, "z")
}

// Close ends everything whatever the mode, twice is fine, and nothing is left (TestMain looks).
func TestClose(t *testing.T) {
	for _, mode := range []Mode{Pass, Refuse, Blackhole, HalfOpen, Reset} {
		t.Run(string(mode), func(t *testing.T) {
			p := start(t, echo(t, "hello"), Options{Delay: time.Millisecond})
			c := dial(t, p)
			expect(t, c, "hello")
			setMode(t, p, mode)
			if fresh, err := net.Dial("tcp", p.Addr()); err == nil {
				defer fresh.Close() //nolint:errcheck // reset by now
			}
			p.Close()
			p.Close()
			expectReset(t, c)
			if got := p.Stats().Active; got != 0 {
				t.Errorf("%d connections are left", got)
			}
			if err := p.SetMode(Pass); err != nil {
				t.Errorf("SetMode after Close: %v", err)
			}
		})
	}
}

// Everything at once, for the race detector.
func TestConcurrentChanges(t *testing.T) {
	p := start(t, echo(t, "hello"), Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 30 {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(5 * time.Millisecond))
				_, _ = c.Write([]byte("hi"))
				_, _ = io.ReadAll(c)
				_ = c.Close()
			}
		})
	}
	for _, mode := range []Mode{Blackhole, Refuse, HalfOpen, Reset, Pass, Refuse, Blackhole, Pass} {
		setMode(t, p, mode)
		p.SetDelay(time.Duration(len(mode)) * time.Microsecond)
	}
	wg.Wait()
	setMode(t, p, Pass)
	expect(t, dial(t, p), "hello")
}

func waitFor(t testing.TB, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("the condition never held")
		}
		time.Sleep(time.Millisecond)
	}
}
