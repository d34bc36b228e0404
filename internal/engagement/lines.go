package engagement

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
)

// lines are log lines in order, waiting to be written. Adding one never blocks.
type lines struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []func(logr.Logger)
}

func (l *lines) add(line func(logr.Logger)) {
	l.mu.Lock()
	l.waiting = append(l.waiting, line)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write writes lines until ctx ends, and what waits then.
func (l *lines) write(ctx context.Context, log logr.Logger) {
	for ended := false; !ended; {
		select {
		case <-l.wake:
		case <-ctx.Done():
			ended = true
		}
		l.mu.Lock()
		batch := l.waiting
		l.waiting = nil
		l.mu.Unlock()
		for _, line := range batch {
			line(log)
		}
	}
}
