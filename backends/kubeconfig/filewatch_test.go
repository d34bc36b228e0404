package kubeconfig_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr/funcr"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
)

// A file is seen to change in whatever way it is changed.
func TestFilesAreWatched(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "fleet", "config")
	write(t, path, contexts("1", "c"))
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{path}, HoldFor: -1})
	waitToken(t, r, "config/c", "c-1")
	tests := []struct {
		name   string
		change func(t *testing.T, generation string)
	}{
		{"renamed to", func(t *testing.T, g string) { replace(t, path, contexts(g, "c")) }},
		{"written in place", func(t *testing.T, g string) { write(t, path, contexts(g, "c")) }},
		{"moved away and written", func(t *testing.T, g string) {
			do(t, os.Rename(path, path+"~"))
			write(t, path, contexts(g, "c"))
		}},
		{"in a folder that is replaced", func(t *testing.T, g string) {
			write(t, filepath.Join(root, "new", "config"), contexts(g, "c"))
			do(t, os.Rename(filepath.Dir(path), filepath.Join(root, "old"+g)))
			do(t, os.Rename(filepath.Join(root, "new"), filepath.Dir(path)))
		}},
		{"replaced by a link", func(t *testing.T, g string) {
			write(t, filepath.Join(root, "elsewhere", "target"), contexts(g, "c"))
			do(t, os.Symlink("../elsewhere/target", path+".tmp"))
			do(t, os.Rename(path+".tmp", path))
		}},
		{"changed behind the link", func(t *testing.T, g string) {
			write(t, filepath.Join(root, "elsewhere", "target"), contexts(g, "c"))
		}},
		{"in a folder that is a link now", func(t *testing.T, g string) {
			write(t, filepath.Join(root, "v2", "config"), contexts(g, "c"))
			do(t, os.Rename(filepath.Dir(path), filepath.Join(root, "older"+g)))
			do(t, os.Symlink("v2", filepath.Dir(path)))
		}},
		{"in a folder whose link is swapped", func(t *testing.T, g string) {
			write(t, filepath.Join(root, "v3", "config"), contexts(g, "c"))
			do(t, os.Symlink("v3", filepath.Join(root, "link")))
			do(t, os.Rename(filepath.Join(root, "link"), filepath.Dir(path)))
		}},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := fmt.Sprint(i + 2)
			test.change(t, g)
			waitToken(t, r, "config/c", "c-"+g)
		})
	}
	for _, call := range r.Calls() {
		if call.Name != "" && call.Member.Engaged == nil {
			t.Errorf("%s(%s) was called for a file that was only being replaced", call.Method, call.Name)
		}
	}
	do(t, os.Remove(path))
	r.WaitDisengaged(t, "config/c")
	write(t, path, contexts("again", "c"))
	waitToken(t, r, "config/c", "c-again")
}

// volume is a folder as the kubelet fills it: the files are links through ..data to a folder that is exchanged.
type volume struct {
	folder  string
	updates int
}

func (v *volume) update(t *testing.T, files map[string][]byte) {
	t.Helper()
	v.updates++
	version := fmt.Sprintf("..version_%d", v.updates)
	for name, data := range files {
		write(t, filepath.Join(v.folder, version, name), data)
	}
	data := filepath.Join(v.folder, "..data")
	old, _ := os.Readlink(data)
	do(t, os.Symlink(version, data+"_tmp"))
	do(t, os.Rename(data+"_tmp", data))
	for name := range files {
		link := filepath.Join(v.folder, name)
		if _, err := os.Lstat(link); errors.Is(err, os.ErrNotExist) {
			do(t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	entries, err := os.ReadDir(v.folder)
	do(t, err)
	for _, entry := range entries {
		if name := entry.Name(); files[name] == nil && !strings.HasPrefix(name, "..") {
			do(t, os.Remove(filepath.Join(v.folder, name)))
		}
	}
	if old != "" {
		do(t, os.RemoveAll(filepath.Join(v.folder, old)))
	}
}

// A mounted Secret is followed through the kubelet's updates, each within two seconds, and one that changes nothing does nothing.
func TestMountedSecret(t *testing.T) {
	v := volume{folder: t.TempDir()}
	v.update(t, map[string][]byte{"a": contexts("1", "c"), "b": contexts("1", "c")})
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{v.folder}})
	waitFleet(t, r, "a/c", "b/c")

	within := func(what string, wait func()) {
		t.Helper()
		start := time.Now()
		wait()
		took := time.Since(start)
		t.Logf("%s: seen after %s", what, took.Round(time.Millisecond))
		if took > 2*time.Second {
			t.Errorf("%s: seen after %s", what, took)
		}
	}
	v.update(t, map[string][]byte{"a": contexts("2", "c"), "b": contexts("1", "c")})
	within("a changed", func() { waitToken(t, r, "a/c", "c-2") })
	calls := len(r.Calls())
	v.update(t, map[string][]byte{"a": contexts("2", "c"), "b": contexts("1", "c")}) // nothing new
	v.update(t, map[string][]byte{"a": contexts("2", "c"), "b": contexts("3", "c")})
	within("b changed", func() { waitToken(t, r, "b/c", "c-3") })
	if n := len(r.Calls()) - calls; n != 1 {
		t.Errorf("an update of which nothing and one of which one member was new made %d calls, want 1", n)
	}
	v.update(t, map[string][]byte{"a": contexts("2", "c")})
	within("b removed", func() { r.WaitDisengaged(t, "b/c") })
	v.update(t, map[string][]byte{"a": contexts("5", "c"), "c": contexts("5", "c")})
	within("c added", func() { waitFleet(t, r, "a/c", "c/c") })
}

// Without notifications files are polled, and that is said once.
func TestExhaustedNotifications(t *testing.T) {
	full := func() (*fsnotify.Watcher, error) {
		return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE)
	}
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, contexts("1", "c"))
	var warnings atomic.Int32
	logger := funcr.New(func(_, args string) {
		if strings.Contains(args, "polling") {
			warnings.Add(1)
		}
	}, funcr.Options{})
	f := newFiles(t, kubeconfig.FilesOptions{Paths: []string{path}, PollInterval: 20 * time.Millisecond, Logger: logger})
	f.SetNotify(full)
	r := backendtest.Start(t, f)
	for generation := range 5 {
		g := fmt.Sprint(generation)
		replace(t, path, contexts(g, "c"))
		waitToken(t, r, "config/c", "c-"+g)
	}
	if n := warnings.Load(); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
}

// The files that a kubeconfig refers to are part of it, and none of them is taken for a kubeconfig.
func TestReferredFiles(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	data := bytes.ReplaceAll(contexts("1", "c"), []byte(`token: "c-1"`), []byte("tokenFile: token"))
	write(t, path("config"), data)
	write(t, path("token"), []byte("first\n"))
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{folder}})
	waitFleet(t, r, "config/c")
	waitToken(t, r, "config/c", "first")
	replace(t, path("token"), []byte("second\n"))
	waitToken(t, r, "config/c", "second")
	do(t, os.Remove(path("token")))
	if hold := r.WaitHeld(t, "config/c", backends.ReasonInvalidKubeconfig); !hold.Keep {
		t.Errorf("held as %+v, want the last good connection kept", hold)
	}
	write(t, path("token"), []byte("third\n"))
	waitToken(t, r, "config/c", "third")
}

// A folder that goes is trouble of the inventory, and none of its clusters; a folder that is not there yet is waited for.
func TestFolderGoesAndComes(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "deep", "fleet")
	r := backendtest.Start(t, newFiles(t, kubeconfig.FilesOptions{Paths: []string{folder + "/"}, PollInterval: hourly}))
	r.WaitHealth(t, backends.ReasonFilesUnreadable)
	if f := r.Fleet(); f.Synced > 0 {
		t.Errorf("a folder that is not there is said to be known: %s", f)
	}
	write(t, filepath.Join(folder, "config"), contexts("1", "c"))
	r.WaitSynced(t)
	waitFleet(t, r, "config/c")
	r.WaitHealth(t, "")

	do(t, os.Rename(filepath.Join(root, "deep"), filepath.Join(root, "away")))
	do(t, os.Rename(filepath.Join(root, "away"), filepath.Join(root, "deep"))) // so quickly that it does not matter
	do(t, os.RemoveAll(folder))
	if hold := r.WaitHeld(t, "config/c", backends.ReasonFilesUnreadable); !hold.Keep {
		t.Errorf("held as %+v, want kept", hold)
	}
	r.WaitHealth(t, backends.ReasonFilesUnreadable)
	write(t, filepath.Join(folder, "config"), contexts("2", "c"))
	waitToken(t, r, "config/c", "c-2")
	r.WaitHealth(t, "")
}
