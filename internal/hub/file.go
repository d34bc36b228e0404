package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

const (
	// fileInterval is how often a file is read. It is small, and reading it sees every way in which files are
	// exchanged: written over, renamed, or behind a symbolic link, as Kubernetes does it.
	fileInterval = 2 * time.Second
	// fileTimeout bounds each reading.
	fileTimeout = 5 * time.Second
)

// FileOptions say which file configures a backend.
type FileOptions struct {
	// Path is where the file is.
	Path string
	// Load takes the file's content over, or returns why it does not; then what was loaded before stays. It is called
	// with the first content and every other one, from one goroutine. Its error is shown, so it quotes nothing.
	Load func(data []byte) error
	// Loaded says that an earlier run loaded the file, so that members can be reconciled without it.
	Loaded bool
	// Reason is what the backend's health says while the file cannot be loaded.
	Reason backends.Reason
	// Members returns the members to reconcile when another content was loaded.
	Members func() []string
}

// File is a Watcher for a file that configures a backend, made for one run of a [Loop].
type File struct {
	opts FileOptions

	mu    sync.Mutex
	state watchState
}

// NewFile returns a File that has not been read yet.
func NewFile(opts FileOptions) *File {
	return &File{opts: opts, state: watchState{listed: opts.Loaded, health: backends.Health{
		Reason: backends.ReasonStarting, Message: fmt.Sprintf("read %s: not done yet", opts.Path)}}}
}

func (f *File) run(ctx context.Context, _ *Client, events events) {
	var tried []byte
	var loaded error
	first := true // even an empty file is tried once
	for {
		data, err := f.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if first || !bytes.Equal(data, tried) {
				tried, loaded = data, f.opts.Load(data)
				if loaded == nil {
					events.changed(f.opts.Members())
				}
			}
			err, first = loaded, false
		} else {
			first = true // whatever comes next is tried, even the same again
		}
		f.note(err)
		events.wake()
		if !sleep(ctx, fileInterval) {
			return
		}
	}
}

func (f *File) read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	return connection.ReadFile(ctx, f.opts.Path)
}

func (f *File) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.answered = true
	if err == nil {
		f.state = watchState{answered: true, listed: true}
		return
	}
	var broken *fs.PathError
	if errors.As(err, &broken) { // the path is named already
		err = broken.Err
	}
	kept := "nothing could be loaded yet"
	if f.state.listed {
		kept = "what was loaded before stays in force"
	}
	f.state.health = backends.Health{Reason: f.opts.Reason, Message: fmt.Sprintf("read %s: %s; %s", f.opts.Path, err, kept)}
}

func (f *File) states() []watchState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []watchState{f.state}
}

func (f *File) members() []string { return nil }
