package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	apiServerPackage = "k8s.io/kubernetes/cmd/kube-apiserver"
	etcdPackage      = "go.etcd.io/etcd/server/v3"
	// spaceNeeded is what a build writes to the cache, in bytes: both programs, and as much while linking.
	spaceNeeded = 400 << 20
)

// recipe is how the programs are built from a module.
type recipe struct {
	moduleFiles
	kubernetes, etcd string // versions
}

func readRecipe(dir string) (recipe, error) {
	m, err := readModule(dir)
	if err != nil {
		return recipe{}, err
	}
	r := recipe{moduleFiles: m}
	if r.kubernetes, err = m.version("k8s.io/kubernetes"); err != nil {
		return recipe{}, err
	}
	if r.etcd, err = m.version(etcdPackage); err != nil {
		return recipe{}, err
	}
	return r, nil
}

// name names the build in the cache: another version, another digest of go.mod and go.sum, or another
// platform is another build.
func (r recipe) name() string {
	return fmt.Sprintf("kubernetes-%s-etcd-%s-%s-%s-%s", r.kubernetes, r.etcd, runtime.GOOS, runtime.GOARCH, r.digest)
}

// build builds both programs into dir.
func (r recipe) build(ctx context.Context, c cache, dir string) error {
	if n, err := free(dir); err == nil && n < spaceNeeded {
		return fmt.Errorf("build kube-apiserver and etcd: %w (%s has %d MB, %d are needed)", ErrNoSpace, dir, n>>20, spaceNeeded>>20)
	}
	g, err := newGoTool(r.dir, c)
	if err != nil {
		return err
	}
	c.say("building kube-apiserver %s and etcd %s from Go modules, once, into %s", r.kubernetes, r.etcd, c.dir)
	began := time.Now()
	// Listing downloads whatever is needed, so that a failure here is one of the network and not of a compiler.
	packages, err := g.run(ctx, "downloading modules", "list", "-deps", "-f", "{{.ImportPath}}", apiServerPackage, etcdPackage)
	if err != nil {
		if !errors.Is(err, ErrNoSpace) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrNoModules, err)
		}
		return fmt.Errorf("build kube-apiserver and etcd: %w", err)
	}
	g.total = bytes.Count(packages, []byte("\n"))
	b := binaries(dir)
	for _, p := range []struct{ path, pkg, flags string }{
		{b.APIServer, apiServerPackage, "-s -w " + r.versionFlags()},
		{b.Etcd, etcdPackage, "-s -w"},
	} {
		what := "compiling " + filepath.Base(p.path)
		if _, err := g.run(ctx, what, "build", "-v", "-ldflags", p.flags, "-o", p.path, p.pkg); err != nil {
			return fmt.Errorf("build %s: %w", filepath.Base(p.path), err)
		}
	}
	c.say("built kube-apiserver and etcd in %s", time.Since(began).Round(time.Second))
	return nil
}

// versionFlags make the server report the version that it is: the release scripts of Kubernetes do this, and a
// plain go build does not.
func (r recipe) versionFlags() string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(r.kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	var flags []string
	for _, v := range [][2]string{
		{"gitVersion", r.kubernetes}, {"gitMajor", major}, {"gitMinor", minor},
		{"gitCommit", "unknown"}, // a module zip does not tell
		{"gitTreeState", "archive"},
	} {
		flags = append(flags, "-X k8s.io/component-base/version."+v[0]+"="+v[1])
	}
	return strings.Join(flags, " ")
}

// goTool runs the go tool in a module, independently of what the user's environment says of workspaces,
// vendoring and target platforms.
type goTool struct {
	path, module string
	env          []string
	cache        cache
	total        int // packages to compile, if known
}

func newGoTool(module string, c cache) (*goTool, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoGo, err)
	}
	flags := []string{"-mod=readonly", "-buildvcs=false"}
	if slices.Contains(strings.Fields(os.Getenv("GOFLAGS")), "-modcacherw") {
		flags = append(flags, "-modcacherw")
	}
	// As the tests are built, with cgo or without: packages that they need in the same version are then compiled once
	// for both, which is nearly half of all. For that, paths are not trimmed either, and hack/controlplane/go.mod requires
	// the versions of the main module.
	env := append(os.Environ(), "GOWORK=off", "GO111MODULE=on", "GOFLAGS="+strings.Join(flags, " "),
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	return &goTool{path: path, module: module, env: env, cache: c}, nil
}

// run runs the go tool, saying every now and then how far it is, and returns its output.
func (g *goTool) run(ctx context.Context, what string, args ...string) (output []byte, err error) {
	cmd := groupCommand(ctx, g.path, args...)
	cmd.Dir, cmd.Env = g.module, g.env
	var stdout bytes.Buffer
	stderr := &lines{keep: 20}
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	guard, err := startGuard("")
	if err != nil {
		return nil, err
	}
	defer func() {
		if gerr := guard.release(); err == nil {
			err = gerr
		}
	}()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: run go %s: %w", what, args[0], err)
	}
	// Should this process be killed, the compilers would go on for minutes.
	if err := guard.watch(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, killGroup(cmd.Process.Pid), cmd.Wait())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	began := time.Now()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil {
				return stdout.Bytes(), nil
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%s: %w", what, context.Cause(ctx))
			}
			text := stderr.String()
			if strings.Contains(text, syscall.ENOSPC.Error()) {
				return nil, fmt.Errorf("%s: %w", what, ErrNoSpace)
			}
			return nil, fmt.Errorf("%s: go %s: %w, its last words are:\n%s", what, args[0], err, text)
		case <-tick.C:
			n := ""
			if g.total > 0 {
				n = fmt.Sprintf(", %d of at most %d packages", stderr.count.Load(), g.total)
			}
			g.cache.say("%s, %s so far%s", what, time.Since(began).Round(time.Second), n)
		}
	}
}

// lines counts the lines written to it and keeps the last ones. It is written to by one goroutine, and read
// when that has ended; the count may be read at any time.
type lines struct {
	keep    int
	count   atomic.Int64
	last    []string
	partial []byte
}

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(b []byte) (int, error) {
	l.partial = append(l.partial, b...)
	for {
		advance, line, _ := bufio.ScanLines(l.partial, false)
		if advance == 0 {
			return len(b), nil
		}
		l.count.Add(1)
		if l.last = append(l.last, string(line)); len(l.last) > l.keep {
			l.last = slices.Delete(l.last, 0, 1)
		}
		l.partial = l.partial[advance:]
	}
}

// String returns the last lines, an unfinished one included.
func (l *lines) String() string {
	return strings.TrimSpace(strings.Join(append(slices.Clone(l.last), string(l.partial)), "\n"))
}
