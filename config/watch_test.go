package config_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tributary-fleet/tributary/config"
)

const head = "apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends:\n"

// told is one call of Watch.
type told struct {
	fleet *config.Fleet
	err   error
}

// watch watches a file until the test ends, and returns what is told.
func watch(t *testing.T, path string, opts config.WatchOptions) <-chan told {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	calls := make(chan told, 1000)
	var wg sync.WaitGroup
	wg.Go(func() {
		config.Watch(ctx, path, config.NewRegistry(), opts, func(f *config.Fleet, err error) { calls <- told{f, err} })
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return calls
}

func next(t *testing.T, calls <-chan told) told {
	t.Helper()
	select {
	case c := <-calls:
		return c
	case <-time.After(time.Minute):
		t.Fatal("nothing is told")
		return told{}
	}
}

// first returns the name of the first backend that is told.
func first(t *testing.T, calls <-chan told) string {
	t.Helper()
	c := next(t, calls)
	if c.err != nil {
		t.Fatal(c.err)
	}
	return c.fleet.Backends[0].Name
}

func write(t *testing.T, path, text string) {
	t.Helper()
	beside := path + ".new"
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, path); err != nil {
		t.Fatal(err)
	}
}

func fleetOf(name string) string { return head + "- {name: " + name + ", kind: KubeconfigFiles}\n" }

func TestWatch(t *testing.T) {
	for name, opts := range map[string]config.WatchOptions{
		"notified": {PollInterval: time.Hour, Settle: time.Millisecond},
		"polled":   {PollInterval: 5 * time.Millisecond, Settle: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "fleet.yaml")
			calls := watch(t, path, opts)
			if c := next(t, calls); !errors.Is(c.err, os.ErrNotExist) {
				t.Fatalf("a file that is not there: got %v", c.err)
			}
			write(t, path, fleetOf("a"))
			if got := first(t, calls); got != "a" {
				t.Errorf("got %s, want a", got)
			}
			write(t, path, fleetOf("a")) // is not told
			write(t, path, head+"- {nam: b, kind: KubeconfigFiles, prefix: A}\n")
			if c := next(t, calls); c.fleet != nil || len(config.Findings(c.err)) != 3 {
				t.Errorf("a bad file: got %v", c.err)
			}
			write(t, path, fleetOf("a")) // good again
			if got := first(t, calls); got != "a" {
				t.Errorf("got %s, want a", got)
			}
		})
	}
}

// The kubelet swaps the folder that a ConfigMap's files are links into.
func TestWatchConfigMap(t *testing.T) {
	folder := t.TempDir()
	put := func(version, text string) {
		t.Helper()
		dir := filepath.Join(folder, version)
		link := filepath.Join(folder, "..data_tmp")
		err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "fleet.yaml"), []byte(text), 0o600),
			os.Symlink(version, link), os.Rename(link, filepath.Join(folder, "..data")))
		if err != nil {
			t.Fatal(err)
		}
	}
	put("..1", fleetOf("a"))
	path := filepath.Join(folder, "fleet.yaml")
	if err := os.Symlink(filepath.Join("..data", "fleet.yaml"), path); err != nil {
		t.Fatal(err)
	}
	calls := watch(t, path, config.WatchOptions{PollInterval: time.Hour, Settle: time.Millisecond})
	if got := first(t, calls); got != "a" {
		t.Errorf("got %s, want a", got)
	}
	put("..2", fleetOf("b"))
	if got := first(t, calls); got != "b" {
		t.Errorf("got %s, want b", got)
	}
}

// A file that changes all the time is still read, and what it says last is told.
func TestWatchRestlessFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	write(t, path, fleetOf("a"))
	calls := watch(t, path, config.WatchOptions{PollInterval: time.Hour, Settle: time.Millisecond})
	first(t, calls)
	for i := range 100 {
		write(t, path, fleetOf("b"+strings.Repeat("x", i%50)))
	}
	write(t, path, fleetOf("last"))
	for first(t, calls) != "last" {
	}
}
