package kubeconfig

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

// everything stands for all names in a folder.
const everything = ""

// points are the names in folders at which changes matter, by physical folder: none of its components is a
// symbolic link.
type points map[string]map[string]bool

func (p points) add(folder, name string) {
	if p[folder] == nil {
		p[folder] = map[string]bool{}
	}
	p[folder][name] = true
}

// lead adds every point at which a change could make path lead to another file, or change the file: the symbolic links
// on the way, and its end, or where the way ends. It returns the physical path, as far as it goes.
func (p points) lead(path string) string {
	const mostLinks = 40 // as the kernel
	separator := string(filepath.Separator)
	at := filepath.VolumeName(path) + separator
	rest := strings.Split(strings.TrimPrefix(path, at), separator)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			p.add(at, name)
			return at
		}
		if info.Mode()&os.ModeSymlink != 0 {
			p.add(at, name)
			target, err := os.Readlink(next)
			if links++; err != nil || links > mostLinks {
				return at
			}
			if filepath.IsAbs(target) {
				at = filepath.VolumeName(target) + separator
				target = strings.TrimPrefix(target, at)
			}
			rest = append(strings.Split(target, separator), rest...)
			continue
		}
		if len(rest) == 0 {
			p.add(at, name)
		}
		at = next
	}
	return at
}

// concerns reports whether something that happened at path may matter.
func (p points) concerns(path string) bool {
	names, ok := p[filepath.Dir(path)]
	if _, itself := p[path]; itself || !ok {
		return true // a folder itself; or one that has two names, and the other was watched first
	}
	return names[everything] || names[filepath.Base(path)]
}

// folderWatch has the file system tell when something happens at points. It is for one goroutine.
type folderWatch struct {
	open   func() (*fsnotify.Watcher, error)
	logger logr.Logger

	watcher *fsnotify.Watcher // nil until it could be opened
	points  points
	watched map[string]os.FileInfo
	polling bool // some folder cannot be watched
	warned  bool
}

func (w *folderWatch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // it waits for its goroutine
	}
}

// watch makes p the points that are watched, and reports whether a folder is watched now that was not before.
func (w *folderWatch) watch(p points) (added bool) {
	w.points, w.polling = p, false
	if w.watcher == nil {
		watcher, err := w.open()
		if err != nil {
			w.cannot(err)
			return false
		}
		w.watcher, w.watched = watcher, map[string]os.FileInfo{}
	}
	// The watcher forgets folders that were removed or moved away.
	list := w.watcher.WatchList()
	slices.Sort(list)
	for _, folder := range list {
		info, err := os.Stat(folder)
		if p[folder] == nil || err != nil || w.watched[folder] == nil || !os.SameFile(info, w.watched[folder]) {
			_ = w.watcher.Remove(folder)
			delete(w.watched, folder)
		}
	}
	for folder := range p {
		if _, known := w.watched[folder]; known {
			if _, still := slices.BinarySearch(list, folder); still {
				continue
			}
		}
		info, err := os.Stat(folder)
		if err == nil {
			err = w.watcher.Add(folder)
		}
		switch {
		case err == nil:
			w.watched[folder], added = info, true
		case os.IsNotExist(err):
			added = true // it went meanwhile, so the points are wrong
		default:
			w.cannot(err)
		}
	}
	return added
}

// cannot takes note that files have to be polled.
func (w *folderWatch) cannot(err error) {
	w.polling = true
	if !w.warned {
		w.warned = true
		w.logger.Error(err, "cannot watch kubeconfig files, polling them instead")
	}
}

// wait waits until something has happened and the file system is quiet again, or until a time, or until ctx ends.
func (w *folderWatch) wait(ctx context.Context, until time.Time) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	if w.watcher != nil {
		events, failures = w.watcher.Events, w.watcher.Errors
	}
	deadline := time.NewTimer(time.Until(until))
	defer deadline.Stop()
	latest := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			return
		case event, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if event.Name == "" || !w.points.concerns(event.Name) {
				continue
			}
		case _, ok := <-failures: // it lost events: anything may have happened
			if !ok {
				failures = nil
				continue
			}
		}
		if latest.IsZero() {
			latest = time.Now().Add(busy)
			if until.Before(latest) {
				latest = until
			}
		}
		deadline.Reset(min(quiet, time.Until(latest)))
	}
}
