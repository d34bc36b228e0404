package execplugin

import (
	"context"
	"sync"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

// Options are how plugins are run. The zero value works.
type Options struct {
	// MaxConcurrent is how many plugins run at once; others wait for their turn. Default 8.
	//
	// Plugins of the same command may have half of these (rounded up) at most, so that one command that hangs leaves room for
	// others even before it is known to hang. Plugins whose last run failed may have half of them at most too, and half of their
	// command's share, so that their retries do not keep those waiting that work.
	MaxConcurrent int
	// Timeout bounds one run, after which the plugin and all its children are killed. Default 15s.
	Timeout time.Duration
	// MaxOutput bounds what a plugin may write to stdout, and to stderr, in bytes. One that writes more is killed. Default 1 MiB.
	MaxOutput int
	// Environment names the variables of this process that plugins get, if they are set. Everything else, such as the
	// process's own cloud credentials, is kept from them. Default: [DefaultEnvironment].
	Environment []string
}

func (o Options) withDefaults() Options {
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = 8
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = 1 << 20
	}
	if o.Environment == nil {
		o.Environment = DefaultEnvironment()
	}
	return o
}

// Runner runs plugins and keeps the sources of their credentials. It is safe for concurrent use.
type Runner struct {
	opts Options
	all  lane // every plugin

	// execute runs a plugin once. Tests of what is around it replace it.
	execute func(context.Context, connection.Exec, connection.Endpoint) (*Credential, error)

	runs sync.WaitGroup // goroutines that run plugins for sources

	mu      sync.Mutex // guards what follows; never held while a plugin runs
	closed  bool
	sources map[sourceKey]*shared
	lanes   map[string]*lane // by command; only those in use
}

// sourceKey says which credential it is: equal keys mean that the plugin would be run in exactly the same way.
type sourceKey struct{ exec, endpoint connection.Fingerprint }

// NewRunner returns a runner. It starts nothing by itself.
func NewRunner(o Options) *Runner {
	o = o.withDefaults()
	r := &Runner{
		opts:    o,
		all:     newLane(o.MaxConcurrent),
		sources: make(map[sourceKey]*shared),
		lanes:   make(map[string]*lane),
	}
	r.execute = r.runProcess
	return r
}

// Run runs the plugin once and returns what it printed. It waits for its turn and for the plugin, which is killed with all its children
// when ctx ends or the timeout is over. The error is an *[Error], or ctx's if it ended before the plugin's turn came.
func (r *Runner) Run(ctx context.Context, exec connection.Exec, endpoint connection.Endpoint) (*Credential, error) {
	return r.run(ctx, exec, endpoint, false)
}

func (r *Runner) run(ctx context.Context, exec connection.Exec, endpoint connection.Endpoint, suspect bool) (*Credential, error) {
	own := r.enter(exec.Command)
	defer r.leave(exec.Command, own)
	// Its own command's turn comes first: who waits for that keeps nothing from other commands.
	for _, l := range []*lane{own, &r.all} {
		if err := l.acquire(ctx, suspect); err != nil {
			return nil, err
		}
		defer l.release(suspect)
	}
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	return r.execute(ctx, exec, endpoint)
}

// Source returns the source of a plugin's credential. Sources of the same plugin, run in the same way, share the credential and
// its runs. Each is to be closed; with the last one the credential is forgotten.
func (r *Runner) Source(exec connection.Exec, endpoint connection.Endpoint) *Source {
	if !exec.ProvideClusterInfo {
		endpoint = connection.Endpoint{} // the plugin does not see it
	}
	key := sourceKey{
		exec:     connection.Spec{Auth: connection.Auth{Exec: &exec}}.AuthFingerprint(),
		endpoint: connection.Spec{Endpoint: endpoint}.EndpointFingerprint(),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sources[key]
	if !ok {
		s = &shared{runner: r, key: key, exec: exec, endpoint: endpoint}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		if r.closed {
			s.cancel()
		} else {
			r.sources[key] = s
		}
	}
	s.users++
	return &Source{shared: s, done: make(chan struct{})}
}

// release forgets a shared source when its last user has gone.
func (r *Runner) release(s *shared) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.cancel()
	if r.sources[s.key] == s {
		delete(r.sources, s.key)
	}
}

// start runs f in a goroutine that Close waits for, unless the runner is closed.
func (r *Runner) start(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.runs.Go(f)
	return true
}

// Close kills the plugins that run for sources and waits until they are gone, or until ctx ends, when it returns ctx's error.
// Sources answer [ErrClosed] from then on.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	for _, s := range r.sources {
		s.cancel()
	}
	clear(r.sources)
	r.mu.Unlock()

	done := make(chan struct{})
	go func() {
		r.runs.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
