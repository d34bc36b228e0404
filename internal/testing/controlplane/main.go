package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Pool holds the control planes that the tests of a package share. The zero value is ready to use; [Main] or
// [Pool.Stop] stops what is in it. Its methods may be called concurrently.
//
//	var planes controlplane.Pool
//
//	func TestMain(m *testing.M) { controlplane.Main(m, &planes) }
//
//	func TestSomething(t *testing.T) {
//		hub := planes.Get(t, controlplane.Options{Name: "hub", CRDs: …})
type Pool struct {
	mu     sync.Mutex // guards the map, and is not held while a control plane starts
	planes map[string]*pooled
}

type pooled struct {
	once  sync.Once
	plane *ControlPlane
	err   error
}

// deadlineMargin is how long before go test's limit a Get gives up: in time to fail with a sentence, where the
// limit itself would end in a dump of all goroutines.
const deadlineMargin = 5 * time.Second

// errTestDeadline says what to do if the first build takes too long.
var errTestDeadline = errors.New("go test's limit for the package is near; if programs were being built, run it again, which goes on from here, or with a higher -timeout")

// Get returns the pool's control plane of the name in opts, which it starts when it is first asked for; the
// options count then alone. It fails the test if that does not work. Tests must leave it as
// they found it: running, and with nothing of theirs that could disturb others.
func (p *Pool) Get(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	p.mu.Lock()
	if p.planes == nil {
		p.planes = map[string]*pooled{}
	}
	entry := p.planes[opts.Name]
	if entry == nil {
		entry = &pooled{}
		p.planes[opts.Name] = entry
	}
	p.mu.Unlock()
	entry.once.Do(func() {
		// Not the test's context: the control plane is for others, too.
		ctx := context.Background()
		if t, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
			if d, ok := t.Deadline(); ok {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadlineCause(ctx, d.Add(-deadlineMargin), errTestDeadline)
				defer cancel()
			}
		}
		entry.plane, entry.err = Start(ctx, opts)
	})
	if entry.err != nil {
		t.Fatal(entry.err)
	}
	return entry.plane
}

// Stop stops every control plane of the pool. No Get may run or follow.
func (p *Pool) Stop() error {
	p.mu.Lock()
	var planes []*ControlPlane
	for _, entry := range p.planes {
		planes = append(planes, entry.plane)
	}
	p.planes = nil
	p.mu.Unlock()
	return StopAll(planes...)
}

// Main runs a package's tests, stops the pool, looks for goroutines that the tests have left behind, and exits. It is
// what TestMain calls. Should the process die before that, the control planes end with it all the same.
func Main(m *testing.M, pool *Pool, options ...goleak.Option) {
	code := m.Run()
	if err := pool.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind by the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}
