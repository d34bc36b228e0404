package transport

import (
	"context"
	"net"
	"time"

	"github.com/tributary-fleet/tributary/internal/execplugin"
)

// Options are how generations connect and how a transport swaps them. The zero value works.
type Options struct {
	// Deadlines bound requests by their kind.
	Deadlines Deadlines

	// DialTimeout bounds making a TCP connection, to the server or its proxy. Default 10s.
	DialTimeout time.Duration
	// TLSHandshakeTimeout bounds a TLS handshake. Default 10s.
	TLSHandshakeTimeout time.Duration
	// IdleTimeout is how long a connection without requests is kept open, and net/http may keep a closed one in memory. Default 90s.
	IdleTimeout time.Duration
	// PingInterval is how long an HTTP/2 connection may be silent before it is pinged, and PingTimeout how
	// long the answer may take before the connection counts as dead: together, how long a half-open
	// connection lives. HTTP/1.1 connections have TCP keepalives of the same pace. Defaults 15s and 10s.
	PingInterval, PingTimeout time.Duration
	// Dial makes network connections. It is called with "tcp" and host:port. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// DrainTimeout is how long requests in flight may go on over a generation that is no longer in force. Lists may go on to their own
	// deadline if that is later, and watch-lists in their initial events for five minutes. Default 30s.
	DrainTimeout time.Duration
	// SessionDrainTimeout is the same for log follows and upgraded connections (exec, port-forward), which belong to somebody
	// who would notice their end. Default 1h.
	SessionDrainTimeout time.Duration
	// Stagger is the time over which the watches of an old generation are ended, each at a random moment of it. Default 1s.
	Stagger time.Duration

	// OnUnauthorized is told when the server has answered 401 to the credential of the generation in force, and
	// refreshing it and asking again have not helped. It is called from the request's goroutine, so it must return at once;
	// for one generation at most once per UnauthorizedInterval. Nil: nobody is told.
	OnUnauthorized func(*Generation)
	// UnauthorizedInterval is the least time between two calls of OnUnauthorized. Default 5s.
	UnauthorizedInterval time.Duration

	// UserAgent is sent with requests that have none.
	UserAgent string

	// Exec runs credential plugins. Without it a connection with a plugin is refused.
	Exec *execplugin.Runner
}

// Deadlines bound requests, from the first byte sent to the last byte of the answer's body read, by their kind.
// A caller's context that ends earlier still counts. A negative duration means no deadline.
//
// It is one deadline for everything: waiting for the connection's plugin counts, and so does asking again after a 401. A request that
// goes to another generation because of a swap has it anew there, since a watch that cannot be opened costs a relist.
type Deadlines struct {
	// Discovery is for the API's documents and health endpoints: /api, /apis/…, /version, /readyz, … Default 10s.
	Discovery time.Duration
	// Read is for getting one object, and for logs that are not followed. Default 30s.
	Read time.Duration
	// Write is for creating, changing and deleting one object. Default 30s.
	Write time.Duration
	// List is for lists, for deleting collections, and for /openapi. Default 2m.
	List time.Duration
	// Start is until the header of the answer to a watch, a log follow, a proxied request or an upgrade arrives.
	// Once it has, those have no deadline. Default 60s.
	Start time.Duration
}

func (d Deadlines) of(k kind) time.Duration {
	switch k {
	case kindDiscovery:
		return d.Discovery
	case kindRead:
		return d.Read
	case kindWrite:
		return d.Write
	case kindList:
		return d.List
	default:
		return d.Start
	}
}

// withDefaults returns the options with every unset field at its default.
func (o Options) withDefaults() Options {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&o.Deadlines.Discovery, 10*time.Second)
	set(&o.Deadlines.Read, 30*time.Second)
	set(&o.Deadlines.Write, 30*time.Second)
	set(&o.Deadlines.List, 2*time.Minute)
	set(&o.Deadlines.Start, time.Minute)
	set(&o.DialTimeout, 10*time.Second)
	set(&o.TLSHandshakeTimeout, 10*time.Second)
	set(&o.IdleTimeout, 90*time.Second)
	set(&o.PingInterval, 15*time.Second)
	set(&o.PingTimeout, 10*time.Second)
	set(&o.DrainTimeout, 30*time.Second)
	set(&o.SessionDrainTimeout, time.Hour)
	set(&o.Stagger, time.Second)
	set(&o.UnauthorizedInterval, 5*time.Second)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{
			Timeout: o.DialTimeout,
			KeepAliveConfig: net.KeepAliveConfig{
				Enable: true, Idle: o.PingInterval, Interval: max(o.PingTimeout/3, time.Second), Count: 3,
			},
		}).DialContext
	}
	return o
}
