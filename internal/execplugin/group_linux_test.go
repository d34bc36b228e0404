package execplugin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tributary-fleet/tributary/connection"
)

// alive reports whether the process exists and is not merely waiting to be reaped.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}

func readPID(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestHangingPluginIsKilledWhole runs a plugin that sleeps for 12s, and so does its child, which keeps stdout open.
func TestHangingPluginIsKilledWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	// Time enough for the plugin to start its child on a busy machine, and far less than either sleeps.
	r := NewRunner(Options{Timeout: 2 * time.Second})
	start := time.Now()
	_, err := r.Run(t.Context(), testPlugin(t, "hang", file), connection.Endpoint{})
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonTimeout || !e.Timeout() {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
	child := readPID(t, file)
	waitFor(t, "the plugin's child to be gone", func() bool { return !alive(child) })
}

// TestShortDeadline kills a sleeping plugin after 200ms.
func TestShortDeadline(t *testing.T) {
	r := NewRunner(Options{Timeout: 200 * time.Millisecond})
	start := time.Now()
	_, err := r.Run(t.Context(), testPlugin(t, "sleep"), connection.Endpoint{})
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonTimeout {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestChildrenLeftBehindAreKilled runs a plugin that succeeds and leaves a child behind which keeps stdout open.
func TestChildrenLeftBehindAreKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	start := time.Now()
	c, err := NewRunner(Options{}).Run(t.Context(), testPlugin(t, "orphan", file), connection.Endpoint{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Token.Reveal() != "t" {
		t.Errorf("got token %q", c.Token.Reveal())
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("waited for the child: %v", took)
	}
	child := readPID(t, file)
	waitFor(t, "the child to be gone", func() bool { return !alive(child) })
}

// TestChildrenLeftBehindAreReaped runs the same where this process inherits orphans, as the first process of a container does.
func TestChildrenLeftBehindAreReaped(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(t.TempDir(), "pid")
	if _, err := NewRunner(Options{}).Run(t.Context(), testPlugin(t, "orphan", file), connection.Endpoint{}); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", readPID(t, file))); err == nil {
		t.Errorf("the child is there still, or a zombie: %s", stat)
	}
}
