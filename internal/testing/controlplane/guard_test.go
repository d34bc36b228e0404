//go:build linux || darwin || freebsd

package controlplane

import (
	"context"
	"encoding/json"
	"syscall"
	"testing"
	"time"
)

func TestGuardCleansUpAfterAKill(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := helper(t, "be killed", t.TempDir())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var r remains
			if err := json.NewDecoder(out).Decode(&r); err != nil {
				t.Fatal(err)
			}
			if len(r.PIDs) != 3 || r.present() == "" {
				t.Fatalf("the process started %v, want a guard and two servers", r.PIDs)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the process ended well, want it killed")
			}
			eventually(t, 30*time.Second, "nothing left", func(context.Context) bool { return r.present() == "" })
		})
	}
}

func TestReleasedGuardDoesNothing(t *testing.T) {
	dir := t.TempDir()
	g, err := startGuard(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(dir, "server", "/bin/sh", 0, "-c", "sleep 3600")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.watch(p.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := g.release(); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); err != nil || !exists(dir) {
		t.Errorf("after the release: server %v, folder there %t; want both left alone", err, exists(dir))
	}
	if err := killGroup(p.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	<-p.done
}
