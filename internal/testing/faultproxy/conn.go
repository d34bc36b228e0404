package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	// maxQueued is how many bytes may be under way in one direction. It bounds memory, and the throughput at high delays.
	maxQueued = 4 << 20
	// Idle connections hold a small buffer; one that is filled is followed by a large one.
	smallBuffer, largeBuffer = 2 << 10, 64 << 10
)

// conn is one connection through the proxy, with a goroutine for each end and direction.
type conn struct {
	proxy    *Proxy
	accepted time.Time
	client   *net.TCPConn
	forward  *line // client to server
	backward *line

	forgotten atomic.Bool   // half open: what is sent vanishes
	done      chan struct{} // closed by end

	mu     sync.Mutex // guards what follows
	server *net.TCPConn
	ended  bool
}

func newConn(p *Proxy, client *net.TCPConn) *conn {
	c := &conn{proxy: p, accepted: time.Now(), client: client, done: make(chan struct{})}
	c.forward, c.backward = newLine(c), newLine(c)
	return c
}

// serve forwards until both directions have ended.
func (c *conn) serve() {
	defer c.proxy.remove(c)
	defer c.abort()
	target, ok := c.proxy.passable(c)
	if !ok {
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(c.proxy.ctx, "tcp", target)
	if err != nil {
		return // the client sees a reset
	}
	if !c.connected(server.(*net.TCPConn)) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.forward.read(c.client) })
	wg.Go(func() { c.forward.write(c.server) })
	wg.Go(func() { c.backward.read(c.server) })
	c.backward.write(c.client)
	wg.Wait()
	c.end(false)
}

// connected takes the server's end over, unless the connection has ended meanwhile.
func (c *conn) connected(server *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// abort resets both ends.
func (c *conn) abort() { c.end(true) }

// end closes both ends, if that has not happened yet. Without a reset, what was written still arrives.
func (c *conn) end(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	close(c.done)
	for _, tcp := range []*net.TCPConn{c.client, c.server} {
		if tcp == nil {
			continue
		}
		if reset {
			_ = tcp.SetLinger(0)
		}
		_ = tcp.Close()
	}
}

// forget makes the connection half open.
func (c *conn) forget() {
	c.forgotten.Store(true)
	c.kick()
}

// kick lets both directions look at the mode again.
func (c *conn) kick() {
	notify(c.forward.wake)
	notify(c.backward.wake)
}

// line is one direction of a connection: what was read and is to be written when its time comes.
type line struct {
	conn  *conn
	wake  chan struct{} // something changed for the writer
	space chan struct{} // something was taken, for the reader

	mu     sync.Mutex // guards what follows
	queue  []chunk
	queued int // bytes
}

// chunk is what one read returned. The last of a line has no data: the sender has closed its end.
type chunk struct {
	data []byte
	due  time.Time
}

func newLine(c *conn) *line {
	return &line{conn: c, wake: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// read queues what src sends.
func (l *line) read(src *net.TCPConn) {
	buffer := make([]byte, smallBuffer)
	for {
		n, err := src.Read(buffer)
		full := n == len(buffer)
		data := buffer[:n]
		if !full {
			data = bytes.Clone(data)
		}
		if n > 0 && !l.put(data) {
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			l.put(nil)
			return
		case err != nil:
			// The end that sent a reset is gone; a half-open connection does not tell the other.
			if l.conn.forgotten.Load() {
				l.put(nil)
			} else {
				l.conn.abort()
			}
			return
		case full: // and handed on
			buffer = make([]byte, largeBuffer)
		case n <= smallBuffer && len(buffer) > smallBuffer:
			buffer = make([]byte, smallBuffer)
		}
	}
}

// put queues data, and waits while there is too much of it. Not ok: the connection has ended.
func (l *line) put(data []byte) bool {
	delay := time.Duration(l.conn.proxy.delay.Load())
	due := time.Now().Add(delay)
	if first := l.conn.accepted.Add(3 * delay); l == l.conn.forward && due.Before(first) {
		due = first
	}
	for {
		l.mu.Lock()
		if l.queued < maxQueued {
			l.queue = append(l.queue, chunk{data, due})
			l.queued += len(data)
			l.mu.Unlock()
			notify(l.wake)
			return true
		}
		l.mu.Unlock()
		select {
		case <-l.space:
		case <-l.conn.done:
			return false
		}
	}
}

// write sends to dst what is due.
func (l *line) write(dst *net.TCPConn) {
	for {
		c, ok := l.take()
		if !ok {
			return
		}
		switch {
		case l.conn.forgotten.Load():
			if c.data == nil {
				return
			}
		case c.data == nil:
			_ = dst.CloseWrite()
			return
		default:
			if _, err := dst.Write(c.data); err != nil {
				l.conn.abort()
				return
			}
		}
	}
}

// take waits for the next chunk that is due, while the connection is not frozen. Not ok: it has ended.
func (l *line) take() (chunk, bool) {
	for {
		wait := time.Duration(-1)
		l.mu.Lock()
		if len(l.queue) > 0 && (l.conn.proxy.Mode() != Blackhole || l.conn.forgotten.Load()) {
			wait = max(time.Until(l.queue[0].due), 0)
		}
		if wait == 0 {
			c := l.queue[0]
			l.queue[0] = chunk{}
			if l.queue = l.queue[1:]; len(l.queue) == 0 {
				l.queue = nil
			}
			l.queued -= len(c.data)
			l.mu.Unlock()
			notify(l.space)
			return c, true
		}
		l.mu.Unlock()

		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-l.wake:
		case <-l.conn.done:
			return chunk{}, false
		}
	}
}
