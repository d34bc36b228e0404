package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// WatchOptions say how a file is watched. The zero value works.
type WatchOptions struct {
	// PollInterval is how often the file is read, besides whenever the file system says that its folder has changed.
	// Default 10s.
	PollInterval time.Duration
	// Settle is the time from a change until the file is read, so that one that is written in pieces or all the time is read
	// a few times only. Default 200ms.
	Settle time.Duration
}

// Watch reads a fleet file now and whenever its contents change, in whatever way: written, renamed over, or a ConfigMap's
// folder that the kubelet swaps. Each time, it calls changed with the fleet, or with the error of [Load], in which case
// the fleet that was read before should stay in force. What is written anew without a change is not told, nor is
// the same error twice.
//
// It blocks until ctx ends. Calls come one after the other, from this goroutine; a change during a call is told after it.
func Watch(ctx context.Context, path string, kinds *Registry, opts WatchOptions, changed func(*Fleet, error)) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	// Without notifications (there may be no more of them to be had) polling has to do.
	if watcher, err := fsnotify.NewWatcher(); err == nil {
		defer watcher.Close()
		if watcher.Add(filepath.Dir(path)) == nil {
			events, failures = watcher.Events, watcher.Errors
		}
	}
	poll := time.NewTicker(cmp.Or(opts.PollInterval, 10*time.Second))
	defer poll.Stop()

	var data []byte
	var told string // the last error
	first := true
	read := func() {
		now, err := readFile(path)
		switch {
		case err != nil && err.Error() == told, err == nil && told == "" && !first && bytes.Equal(now, data):
			return
		case err != nil:
			told = err.Error()
			changed(nil, err)
			return
		}
		unchanged := !first && bytes.Equal(now, data)
		data, first = now, false
		fleet, err := parseFile(path, data, kinds)
		switch {
		case err == nil:
			told = ""
		case unchanged && err.Error() == told:
			return
		default:
			told = err.Error()
		}
		changed(fleet, err)
	}
	read()
	var settled <-chan time.Time // nil while nothing has changed
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
			} else if settled == nil {
				settled = time.After(cmp.Or(opts.Settle, 200*time.Millisecond))
			}
		case err, ok := <-failures:
			if !ok {
				failures = nil
			} else if errors.Is(err, fsnotify.ErrEventOverflow) && settled == nil {
				settled = time.After(cmp.Or(opts.Settle, 200*time.Millisecond))
			}
		case <-settled:
			settled = nil
			read()
		case <-poll.C:
			read()
		}
	}
}
