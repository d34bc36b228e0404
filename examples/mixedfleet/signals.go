package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// untilToldToEnd returns a context that ends when the process is told to end: by Ctrl-C, by SIGTERM, when its terminal
// is closed, or when the "go run" that started it is gone, since that passes a SIGTERM on to nobody. A second signal
// ends the process at once; the control planes end with it all the same.
func untilToldToEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	if startedByGoRun() {
		parent := os.Getppid()
		go func() { // ends with ctx, that is, with the process
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					if os.Getppid() != parent {
						stop()
					}
				}
			}
		}()
	}
	return ctx, stop
}

// startedByGoRun reports whether this program lies where "go run" builds programs.
func startedByGoRun() bool {
	path, err := os.Executable()
	if err != nil {
		return false
	}
	cache := os.Getenv("GOCACHE") // whoever has set another place than the default
	return strings.Contains(path, "go-build") || cache != "" && strings.HasPrefix(path, cache+string(os.PathSeparator))
}
