package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// session is one run of a Provider, from its start to the end of everything that it brought along. Start and Standby may
// share one.
type session struct {
	ctx    context.Context // of the backends
	cancel context.CancelFunc
	log    logr.Logger
	wg     sync.WaitGroup // the backends' supervisors, and what listens to changes
	// end stops everything, and returns what has not come to its end in time. It may be called more than once.
	end func() error
}

// Start runs the backends and engages their clusters with aware, until ctx ends. multicluster-runtime's manager
// calls it. It returns nil after everything has come to its end, or an error naming what had not within StopTimeout.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	return p.takePart(ctx, aware, "start aggregate", func() error { return p.engine.Lead(aware) })
}

// Standby returns a runnable for the manager of processes of which one at a time is the leader:
//
//	err := mgr.GetLocalManager().Add(fleet.Standby(mgr))
//
// With it, those that are not the leader run the backends too, and keep a proved connection to each cluster; so the one that becomes
// the leader has only to hand the clusters to its controllers. Until then, a cluster's reason is Standby, and nothing is
// listed or watched in it. aware is the manager that will start the Provider.
func (p *Provider) Standby(aware multicluster.Aware) manager.Runnable {
	return &standby{p, aware}
}

var _ manager.LeaderElectionRunnable = (*standby)(nil)

type standby struct {
	p     *Provider
	aware multicluster.Aware
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*standby) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *standby) Start(ctx context.Context) error {
	return s.p.takePart(ctx, s.aware, "start standby", func() error { return nil })
}

// takePart joins the session that runs, or begins one, and ends it when ctx ends or somebody else has ended it.
func (p *Provider) takePart(ctx context.Context, aware multicluster.Aware, what string, begin func() error) error {
	scheme, logger := inherited(aware)
	s, err := p.join(ctx, scheme, logger)
	if err == nil {
		err = begin()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	select {
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return s.end()
}

// join returns the session that runs, or begins one.
func (p *Provider) join(ctx context.Context, scheme *runtime.Scheme, logger logr.Logger) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return p.session, nil
	}
	if p.opts.Logger.GetSink() != nil {
		logger = p.opts.Logger
	}
	s := &session{log: logger.WithName("tributary")}
	// Engagements outlive ctx until they are disengaged in order.
	if err := p.engine.Start(context.WithoutCancel(ctx), scheme, s.log); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx)) // whoever has joined it ends it
	s.end = sync.OnceValue(func() error { return p.endSession(s) })
	p.session = s
	for _, b := range p.backends {
		p.supervise(b)
	}
	p.applyRanks()
	s.wg.Go(func() { p.recordEvents(s.ctx) })
	s.wg.Go(func() { p.followVerdicts(s.ctx) })
	return s, nil
}

// endSession stops everything of a session.
func (p *Provider) endSession(s *session) error {
	s.cancel()
	p.mu.Lock()
	p.session = nil
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), p.opts.StopTimeout)
	defer cancel()
	var problems *multierror.Error
	// The engine first: a backend that does not stop must not use up the time that clusters need. Words that come
	// meanwhile count for nothing.
	problems = multierror.Append(problems, p.engine.Stop(ctx))
	if !waitFor(ctx, &s.wg) {
		problems = multierror.Append(problems, errors.New("backends still running"))
	}
	if err := problems.ErrorOrNil(); err != nil {
		return fmt.Errorf("stop aggregate: %w", err)
	}
	return nil
}

// inherited returns what clusters inherit from the manager that engages them, if it is one.
func inherited(aware multicluster.Aware) (*runtime.Scheme, logr.Logger) {
	if mgr, ok := aware.(interface{ GetLocalManager() manager.Manager }); ok {
		local := mgr.GetLocalManager()
		return local.GetScheme(), local.GetLogger()
	}
	return nil, logr.Discard()
}
