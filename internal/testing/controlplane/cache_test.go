//go:build linux || darwin || freebsd

package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRacingProcessesBuildOnce(t *testing.T) {
	dir := t.TempDir()
	ended := make(chan error, racers)
	for range racers {
		cmd := helper(t, "build once", dir)
		go func() { ended <- cmd.Run() }()
	}
	for range racers {
		if err := <-ended; err != nil {
			t.Errorf("a racing process failed: %v", err)
		}
	}
	if n := countLines(filepath.Join(dir, "built")); n != 1 {
		t.Errorf("%d processes built, want 1", n)
	}
}

func TestKilledBuildLeavesNoEntry(t *testing.T) {
	dir := t.TempDir()
	cmd := helper(t, "hang", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed

	entry, err := cache{dir: dir, progress: io.Discard}.entry(t.Context(), "thing", func(_ context.Context, part string) error {
		return os.WriteFile(filepath.Join(part, "whole"), nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"whole"}, names(t, entry)); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{".thing.lock", "thing"}, names(t, dir)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
}

func TestFailedBuildLeavesNoEntry(t *testing.T) {
	c := cache{dir: t.TempDir(), progress: io.Discard}
	broken := errors.New("broken")
	_, err := c.entry(t.Context(), "thing", func(_ context.Context, part string) error {
		return errors.Join(broken, os.WriteFile(filepath.Join(part, "half"), nil, 0o644))
	})
	if !errors.Is(err, broken) {
		t.Errorf("error is %v, want the build's", err)
	}
	if diff := cmp.Diff([]string{".thing.lock"}, names(t, c.dir)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
}

func TestWaitingSaysForWhomAndEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	unlock, err := cache{dir: dir, progress: io.Discard}.lock(t.Context(), "thing")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		var progress bytes.Buffer
		_, err := cache{dir: dir, progress: &progress}.lock(ctx, "thing")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want one of the deadline", err)
		}
		holder := fmt.Sprintf("process %d (", os.Getpid())
		if err != nil && !strings.Contains(err.Error(), holder) {
			t.Errorf("error %q does not name the holder, %q", err, holder)
		}
		lines := strings.Split(strings.TrimSpace(progress.String()), "\n")
		if len(lines) != 3 { // at once, after 10 s, after 20 s
			t.Errorf("%d lines of progress, want 3:\n%s", len(lines), progress.String())
		}
		for _, line := range lines {
			if !strings.Contains(line, holder) {
				t.Errorf("progress %q does not name the holder, %q", line, holder)
			}
		}
	})
}

// names returns the names in a folder, sorted.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// appendLine adds a line to a file that several processes write to.
func appendLine(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x\n")
	return errors.Join(err, f.Close())
}

func countLines(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("\n"))
}
