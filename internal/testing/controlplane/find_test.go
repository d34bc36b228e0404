//go:build linux || darwin || freebsd

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFindUsesWhatTheUserNames(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	want := Binaries{APIServer: filepath.Join(dir, "kube-apiserver"), Etcd: filepath.Join(dir, "etcd")}
	for _, step := range []struct {
		name    string
		prepare func() error
		mention string // in the error; none wanted if empty
	}{
		{"empty folder", func() error { return nil }, want.APIServer},
		{"etcd is missing", func() error { return os.WriteFile(want.APIServer, nil, 0o755) }, want.Etcd},
		{"etcd is no program", func() error { return os.WriteFile(want.Etcd, nil, 0o644) }, want.Etcd + " is no program"},
		{"complete", func() error { return os.Chmod(want.Etcd, 0o755) }, ""},
	} {
		if err := step.prepare(); err != nil {
			t.Fatal(err)
		}
		got, err := Find(t.Context(), t.Output())
		if step.mention == "" {
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: error %v, programs (-want +got):\n%s", step.name, err, diff)
			}
		} else if err == nil || !strings.Contains(err.Error(), step.mention) {
			t.Errorf("%s: error is %v, want one that mentions %q", step.name, err, step.mention)
		}
	}
}

func TestBuildSaysWhyItFails(t *testing.T) {
	// fakeGo puts a go tool into PATH that writes a text and fails.
	fakeGo := func(text string) func(*testing.T) {
		return func(t *testing.T) {
			dir := t.TempDir()
			script := "#!/bin/sh\necho '" + text + "' >&2\nexit 1\n"
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		}
	}
	for _, tt := range []struct {
		name    string
		prepare func(*testing.T)
		want    error
		mention string
	}{
		{"no go tool", func(t *testing.T) { t.Setenv("PATH", t.TempDir()) }, ErrNoGo, "install Go"},
		{"disk full", fakeGo("write $WORK/b001/_pkg_.a: no space left on device"), ErrNoSpace, "free some"},
		{"no network", fakeGo("dial tcp: lookup proxy.golang.org: no such host"), ErrNoModules, "no such host"},
		{"no modules, really", func(t *testing.T) {
			t.Setenv("GOPROXY", "off")
			t.Setenv("GOMODCACHE", t.TempDir())
		}, ErrNoModules, "check the network"},
		{"outside a checkout", func(t *testing.T) { t.Chdir(t.TempDir()) }, nil, "kubernetes-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", "")
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			t.Setenv("HOME", t.TempDir())
			tt.prepare(t)
			module, err := findModule("controlplane")
			if err != nil {
				t.Fatal(err) // this file was compiled inside the checkout, wherever the test runs
			}
			r, err := readRecipe(module)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == nil {
				if !strings.HasPrefix(r.name(), tt.mention) {
					t.Errorf("the build is named %q, want it to begin with %q", r.name(), tt.mention)
				}
				return
			}
			_, err = Find(t.Context(), t.Output())
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.mention) {
				t.Errorf("error is %v, want %q which mentions %q", err, tt.want, tt.mention)
			}
		})
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	child := filepath.Join(dir, "child")
	// The child stands for a compiler that the go tool has started.
	script := "#!/bin/sh\nsleep 3600 & echo $! > '" + child + ".part' && mv '" + child + ".part' '" + child + "'\nwait\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	g, err := newGoTool(t.TempDir(), cache{progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stopped by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := g.run(ctx, "compiling", "build")
		ended <- err
	}()
	eventually(t, 30*time.Second, "child", func(context.Context) bool { return exists(child) })
	cancel(stop)
	if err := <-ended; !errors.Is(err, stop) {
		t.Errorf("error is %v, want %v", err, stop)
	}
	b, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "end of the child", func(context.Context) bool { return remains{PIDs: []int{pid}}.present() == "" })
}

func TestVersionFlags(t *testing.T) {
	r := recipe{kubernetes: "v1.36.3"}
	const v = "-X k8s.io/component-base/version."
	want := v + "gitVersion=v1.36.3 " + v + "gitMajor=1 " + v + "gitMinor=36 " + v + "gitCommit=unknown " + v + "gitTreeState=archive"
	if diff := cmp.Diff(want, r.versionFlags()); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

func TestLinesKeepsTheLast(t *testing.T) {
	l := &lines{keep: 2}
	for _, s := range []string{"one\ntw", "o\nthree\n", "four"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("wrote %d bytes of %d: %v", n, len(s), err)
		}
	}
	if diff := cmp.Diff("two\nthree\nfour", l.String()); diff != "" {
		t.Errorf("last lines (-want +got):\n%s", diff)
	}
	if n := l.count.Load(); n != 3 {
		t.Errorf("%d lines counted, want 3", n)
	}
}

func TestTailBeginsWithAWholeLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	last := append(bytes.Repeat([]byte("z"), 100), '\n')
	if err := os.WriteFile(path, bytes.Repeat(last, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	got := tail(path)
	if len(got) > logTail || len(got)%len(last) != 0 || !bytes.HasSuffix(got, last) {
		t.Errorf("tail is %d bytes of lines of %d, want at most %d in whole lines", len(got), len(last), logTail)
	}
}
