package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is what a Proxy does to connections, those it has and those to come.
type Mode string

const (
	// Pass forwards. Connections that were frozen go on where they stopped; those that were half open stay so.
	Pass Mode = "Pass"
	// Refuse lets nobody connect: the port is closed. Connections go on.
	Refuse Mode = "Refuse"
	// Blackhole freezes connections and accepts new ones, which are frozen from the start. Nothing is lost.
	Blackhole Mode = "Blackhole"
	// HalfOpen makes both ends' bytes vanish on the connections there are, for good and without a word, as a firewall does
	// that has forgotten them. New connections are forwarded.
	HalfOpen Mode = "HalfOpen"
	// Reset resets connections, and new ones as soon as they are accepted.
	Reset Mode = "Reset"
)

// Options are the options of a Proxy. The zero value is a proxy that forwards at once.
type Options struct {
	// Mode is the first mode; default Pass.
	Mode Mode
	// Delay is how long every byte takes one way, half of the round trip. See [Proxy.SetDelay].
	Delay time.Duration
}

// Stats are a Proxy's counters.
type Stats struct {
	Accepted int // connections accepted since Start, whatever became of them
	Active   int // connections that exist now
}

const acceptRetry = 10 * time.Millisecond

// Proxy is a TCP proxy with faults. Its methods may be called concurrently.
type Proxy struct {
	addr     string
	release  func() // gives up the reservation of the port; idempotent
	accepted atomic.Int64
	delay    atomic.Int64 // nanoseconds
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mode atomic.Pointer[Mode] // changed under mu only

	mu       sync.Mutex // guards what follows
	closed   bool
	target   string
	listener net.Listener // nil while refusing
	conns    map[*conn]struct{}
	changed  chan struct{} // closed and replaced with every change of mode
}

// Start starts a proxy to target ("host:port") on a free port of 127.0.0.1.
func Start(target string, options Options) (*Proxy, error) {
	p := &Proxy{target: target, conns: map[*conn]struct{}{}, changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.delay.Store(int64(options.Delay))
	mode := Pass
	p.mode.Store(&mode)

	listener, err := listen(p.ctx, "127.0.0.1:0")
	if err != nil {
		p.cancel()
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p.addr = listener.Addr().String()
	release, err := reserve(p.addr)
	if err != nil {
		p.cancel()
		_ = listener.Close()
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p.release = sync.OnceFunc(release)
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	if options.Mode != "" {
		if err := p.SetMode(options.Mode); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// Addr is where the proxy listens, "127.0.0.1:port". It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Mode is the mode in force.
func (p *Proxy) Mode() Mode { return *p.mode.Load() }

// SetMode changes the mode. An error is only possible on leaving Refuse, when the port cannot be had again.
func (p *Proxy) SetMode(mode Mode) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if mode != Refuse && p.listener == nil {
		listener, err := listen(p.ctx, p.addr)
		if err != nil {
			p.mu.Unlock()
			return fmt.Errorf("set mode %s: %w", mode, err)
		}
		p.listener = listener
		p.wg.Go(func() { p.accept(listener) })
	}
	var closing net.Listener
	if mode == Refuse {
		closing, p.listener = p.listener, nil
	}
	p.mode.Store(&mode)
	close(p.changed)
	p.changed = make(chan struct{})
	conns := p.connections()
	p.mu.Unlock()

	if closing != nil {
		_ = closing.Close()
	}
	for _, c := range conns {
		switch mode {
		case Reset:
			c.abort()
		case HalfOpen:
			c.forget()
		default:
			c.kick()
		}
	}
	return nil
}

// ResetConnections resets the connections there are, and leaves the mode as it is.
func (p *Proxy) ResetConnections() {
	p.mu.Lock()
	conns := p.connections()
	p.mu.Unlock()
	for _, c := range conns {
		c.abort()
	}
}

// SetTarget leads new connections elsewhere. Those that exist stay where they are.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// SetDelay makes every byte that arrives from now on take that long one way. Bytes travel side by side: the delay does not lower
// the throughput. As the kernel answers a connect at once, the round trip that it would have taken is added to
// the connection's first bytes.
func (p *Proxy) SetDelay(delay time.Duration) { p.delay.Store(int64(delay)) }

// Stats returns the counters.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Accepted: int(p.accepted.Load()), Active: len(p.conns)}
}

// Close ends the proxy and all its connections, and waits until nothing of it is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	listener := p.listener
	p.listener = nil
	conns := p.connections()
	p.mu.Unlock()
	p.cancel()
	if listener != nil {
		_ = listener.Close()
	}
	for _, c := range conns {
		c.abort()
	}
	p.wg.Wait()
	p.release()
}

// connections must be called with mu held.
func (p *Proxy) connections() []*conn {
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	return conns
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, for instance, which passes
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(acceptRetry):
				continue
			}
		}
		p.accepted.Add(1)
		c := newConn(p, client.(*net.TCPConn))
		p.mu.Lock()
		if p.closed || p.Mode() == Reset || p.listener != listener {
			p.mu.Unlock()
			c.abort()
			continue
		}
		p.conns[c] = struct{}{}
		p.wg.Go(c.serve)
		p.mu.Unlock()
	}
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// passable waits until new connections are forwarded, and returns where to.
func (p *Proxy) passable(c *conn) (target string, ok bool) {
	for {
		p.mu.Lock()
		target, changed := p.target, p.changed
		p.mu.Unlock()
		if p.Mode() != Blackhole {
			return target, true
		}
		select {
		case <-changed:
		case <-c.done:
			return "", false
		}
	}
}
