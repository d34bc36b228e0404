//go:build linux || darwin || freebsd

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var planes Pool

// helperEnv makes the test binary play another process's part: what it names is run instead of the tests.
const helperEnv = "CONTROLPLANE_TEST_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		if err := helpers[name](os.Getenv(helperEnv + "_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	Main(m, &planes)
}

// helpers are the parts that other processes play. Each is given a folder to work in.
var helpers = map[string]func(dir string) error{
	"build once": buildOnce,
	"hang":       hangInBuild,
	"be killed":  sleepAndHang,
	"panic":      startAndPanic,
}

// helper returns a command that plays the part in a process of its own.
func helper(t *testing.T, part, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+part, helperEnv+"_DIR="+dir)
	cmd.Stderr = t.Output()
	return cmd
}

// racers is how many processes want one entry at once.
const racers = 4

// buildOnce asks for an entry whose build goes on until every racer has come.
func buildOnce(dir string) error {
	if err := appendLine(filepath.Join(dir, "arrived")); err != nil {
		return err
	}
	c := cache{dir: filepath.Join(dir, "cache"), progress: io.Discard}
	entry, err := c.entry(context.Background(), "thing", func(_ context.Context, part string) error {
		if err := appendLine(filepath.Join(dir, "built")); err != nil {
			return err
		}
		for countLines(filepath.Join(dir, "arrived")) < racers {
			time.Sleep(time.Millisecond)
		}
		return os.WriteFile(filepath.Join(part, "file"), []byte("complete"), 0o644)
	})
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(entry, "file"))
	if err == nil && string(b) != "complete" {
		err = fmt.Errorf("entry holds %q", b)
	}
	return err
}

// hangInBuild begins to build an entry, says so, and never ends.
func hangInBuild(dir string) error {
	_, err := cache{dir: dir, progress: io.Discard}.entry(context.Background(), "thing", func(_ context.Context, part string) error {
		if err := os.WriteFile(filepath.Join(part, "half"), nil, 0o644); err != nil {
			return err
		}
		fmt.Println("building")
		select {}
	})
	return err
}

// remains is what could be left of a control plane.
type remains struct {
	Dir  string
	PIDs []int
}

func remainsOf(c *ControlPlane) remains {
	return remains{Dir: c.dir, PIDs: []int{c.etcd.cmd.Process.Pid, c.apiServer.cmd.Process.Pid, c.guard.cmd.Process.Pid}}
}

// sleepAndHang starts processes that stand for servers, says what could be left, and never ends.
func sleepAndHang(dir string) error {
	r := remains{Dir: filepath.Join(dir, "data")}
	if err := os.Mkdir(r.Dir, 0o700); err != nil {
		return err
	}
	g, err := startGuard(r.Dir)
	if err != nil {
		return err
	}
	r.PIDs = append(r.PIDs, g.cmd.Process.Pid)
	leader := 0
	for _, name := range []string{"leader", "follower"} {
		p, err := startProcess(r.Dir, name, "/bin/sh", leader, "-c", "sleep 3600")
		if err != nil {
			return err
		}
		r.PIDs = append(r.PIDs, p.cmd.Process.Pid)
		if leader == 0 {
			leader = p.cmd.Process.Pid
			if err := g.watch(leader); err != nil {
				return err
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	select {}
}

// startAndPanic starts a control plane, says what could be left of it, and panics in a goroutine, which nothing can recover.
func startAndPanic(string) error {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		return err
	}
	if err := c.Pause(); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(remainsOf(c)); err != nil {
		return err
	}
	go panic("as a test would")
	select {}
}
