package connection

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// fileTimeout bounds the reading of one file.
const fileTimeout = 5 * time.Second

var (
	// ErrNotRegular says that a path is no regular file but a folder, device, socket or FIFO.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge says that a file is larger than [DefaultMaxSize].
	ErrTooLarge = errors.New("file too large")
)

// ReadFile reads a regular file of at most [DefaultMaxSize] bytes. Symbolic links are followed, since volumes of
// Kubernetes consist of them; what they lead to has to be a regular file. Anything else is not opened, for
// opening some devices does something (a tape is wound back, a watchdog starts); only somebody who exchanges the file
// within that moment gets one opened, and then not read. It never waits for the writer of a FIFO. ctx is looked at between reads; a read that hangs within the kernel, on a dead network file
// system, cannot be given up. Errors are ErrNotRegular, ErrTooLarge, ctx's, or those of package os.
func ReadFile(ctx context.Context, path string) (_ []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat() // of what was opened, which nobody can exchange any more
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	if info.Size() > DefaultMaxSize {
		return nil, ErrTooLarge
	}
	data := make([]byte, 0, info.Size()+1)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if len(data) > DefaultMaxSize {
			return nil, ErrTooLarge // it grew
		}
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// unreadable words the failure to read a file that a field refers to.
func unreadable(e *entry, field string, err error) *ParseError {
	for _, known := range []struct {
		is      error
		problem Problem
	}{
		{fs.ErrNotExist, ProblemFileNotFound},
		{fs.ErrPermission, ProblemFileForbidden},
		{ErrNotRegular, ProblemFileNotRegular},
		{ErrTooLarge, ProblemFileTooLarge},
		{context.DeadlineExceeded, ProblemFileTimeout},
		{context.Canceled, ProblemFileTimeout},
	} {
		if errors.Is(err, known.is) {
			f := e.failure(field, known.problem)
			f.cause = known.is
			return f
		}
	}
	return e.failure(field, ProblemFileUnreadable)
}
