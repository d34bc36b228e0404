package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// lockPoll is how often a process that waits for another one's build looks whether it is done.
	lockPoll = 200 * time.Millisecond
	// progressEvery is how often a build, or a wait for one, says that it still runs.
	progressEvery = 10 * time.Second
	// buildLimit bounds a build, and a wait for one, where the context sets no earlier deadline. It is above
	// go test's default limit of 10 minutes a package, which thus decides there.
	buildLimit = 20 * time.Minute
)

// cache is a folder of things that are expensive to make: each is a subfolder that is either complete or absent.
// Several processes may use it at once.
type cache struct {
	dir      string
	progress io.Writer // told what is built or waited for, a line at a time
}

// entry returns the folder of that name, making it with build where it does not exist yet. build fills the
// folder that it is given; if it fails or the process is killed, no entry appears. However many processes
// ask at once, one builds and the others wait, until ctx ends.
func (c cache) entry(ctx context.Context, name string, build func(ctx context.Context, dir string) error) (string, error) {
	final := filepath.Join(c.dir, name)
	if exists(final) {
		return final, nil
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return "", fmt.Errorf("create cache folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(final) { // somebody built it while we waited
		return final, nil
	}
	// Only the holder of the lock builds, so what an earlier holder left behind is nobody's.
	stale, err := filepath.Glob(filepath.Join(c.dir, "."+name+".part*"))
	if err != nil {
		return "", fmt.Errorf("list unfinished builds: %w", err)
	}
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("remove unfinished build: %w", err)
		}
	}
	part, err := os.MkdirTemp(c.dir, "."+name+".part")
	if err != nil {
		return "", fmt.Errorf("create build folder: %w", err)
	}
	if err := build(ctx, part); err != nil {
		return "", errors.Join(err, os.RemoveAll(part))
	}
	if err := os.Chmod(part, 0o755); err != nil {
		return "", fmt.Errorf("open build folder for others: %w", err)
	}
	if err := os.Rename(part, final); err != nil {
		return "", fmt.Errorf("move build into place: %w", err)
	}
	return final, nil
}

// lock takes the lock of an entry, and returns the function that releases it. The lock goes with the process:
// one that is killed leaves none behind. The file tells those who wait whom they wait for.
func (c cache) lock(ctx context.Context, name string) (unlock func(), err error) {
	path := filepath.Join(c.dir, "."+name+".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	var said, began time.Time
	for {
		locked, err := tryLock(f)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if locked {
			break
		}
		now := time.Now()
		if began.IsZero() {
			began = now
		}
		if now.Sub(said) >= progressEvery {
			said = now
			c.say("waiting for %s, built by %s (%s so far)", name, holder(path), now.Sub(began).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s, built by %s: %w", name, holder(path), context.Cause(ctx))
		case <-poll.C:
		}
	}
	if err := f.Truncate(0); err != nil {
		return nil, fmt.Errorf("sign lock: %w", err)
	}
	who := fmt.Sprintf("process %d (%s) since %s", os.Getpid(), filepath.Base(os.Args[0]), time.Now().Format(time.TimeOnly))
	if _, err := f.WriteAt([]byte(who), 0); err != nil {
		return nil, fmt.Errorf("sign lock: %w", err)
	}
	// The file stays: removing it would let two processes lock two files of the same name.
	return func() { _ = f.Close() }, nil
}

// say tells the user a line about a build.
func (c cache) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.progress, "control plane: "+format+"\n", args...)
}

// holder says who holds the lock at path.
func holder(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return "another process"
	}
	return strings.TrimSpace(string(b))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
