package execplugin

import "context"

// lane is a number of plugins that may run at once: all of them, or those of one command. Those whose last run failed, the suspects, may
// have half of it.
type lane struct {
	slots    chan struct{} // one for each plugin that runs
	suspects chan struct{} // one for each that runs although its last run failed
	users    int           // guarded by the runner's mu: runs that wait or are under way
}

func newLane(n int) lane {
	return lane{slots: make(chan struct{}, n), suspects: make(chan struct{}, max(n/2, 1))}
}

// acquire waits for a turn. After an error there is nothing to release.
func (l *lane) acquire(ctx context.Context, suspect bool) error {
	if suspect {
		if err := take(ctx, l.suspects); err != nil {
			return err
		}
	}
	err := take(ctx, l.slots)
	if err != nil && suspect {
		<-l.suspects
	}
	return err
}

func (l *lane) release(suspect bool) {
	<-l.slots
	if suspect {
		<-l.suspects
	}
}

func take(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter returns the lane of a command, to be left again.
func (r *Runner) enter(command string) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.lanes[command]
	if !ok {
		own := newLane((r.opts.MaxConcurrent + 1) / 2)
		l = &own
		r.lanes[command] = l
	}
	l.users++
	return l
}

// leave forgets the lane with the last run in it.
func (r *Runner) leave(command string, l *lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(r.lanes, command)
	}
}
