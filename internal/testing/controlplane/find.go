package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
)

// Binaries are the paths of a control plane's programs.
type Binaries struct {
	APIServer string
	Etcd      string
}

// Find returns the programs of a control plane:
//
//   - those in the folder KUBEBUILDER_ASSETS, where that variable is set; nothing is built then;
//   - else those of an earlier build in tributary/controlplane below [os.UserCacheDir]; remove that folder to get rid of them;
//   - else it builds them, which takes some minutes, needs the go tool and its modules, and about 200 MB there
//     besides Go's own caches.
//
// What is built or waited for is said on progress, a line at least every ten seconds. Several processes may
// call Find at once: one builds. It fails with [ErrNoGo], [ErrNoSource], [ErrNoModules] or [ErrNoSpace] where that is why.
func Find(ctx context.Context, progress io.Writer) (Binaries, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return binariesIn(dir)
	}
	module, err := findModule("controlplane")
	if err != nil {
		return Binaries{}, err
	}
	r, err := readRecipe(module)
	if err != nil {
		return Binaries{}, err
	}
	c, err := openCache(progress)
	if err != nil {
		return Binaries{}, err
	}
	dir, err := c.entry(ctx, r.name(), func(ctx context.Context, dir string) error { return r.build(ctx, c, dir) })
	if err != nil {
		return Binaries{}, err
	}
	return binaries(dir), nil
}

func openCache(progress io.Writer) (cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return cache{}, fmt.Errorf("find the user's cache folder: %w", err)
	}
	return cache{dir: filepath.Join(dir, "tributary", "controlplane"), progress: progress}, nil
}

func binaries(dir string) Binaries {
	return Binaries{APIServer: filepath.Join(dir, "kube-apiserver"), Etcd: filepath.Join(dir, "etcd")}
}

// binariesIn returns the programs of a folder that the user named.
func binariesIn(dir string) (Binaries, error) {
	b := binaries(dir)
	for _, path := range []string{b.APIServer, b.Etcd} {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return Binaries{}, fmt.Errorf("KUBEBUILDER_ASSETS: %w", err)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			return Binaries{}, fmt.Errorf("KUBEBUILDER_ASSETS: %s is no program", path)
		}
	}
	return b, nil
}

// findModule returns the folder of the nested module hack/NAME. It looks upwards from the working directory,
// which is right for go test and for go run in a checkout, and then from where this file was compiled.
func findModule(name string) (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for {
			module := filepath.Join(dir, "hack", name)
			if b, err := os.ReadFile(filepath.Join(module, "go.mod")); err == nil && ours.Match(b) {
				return module, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", fmt.Errorf("%w: there is no hack/%s above the working directory", ErrNoSource, name)
}

// ours matches the go.mod of a nested module of this repository.
var ours = regexp.MustCompile(`(?m)^module github\.com/tributary-fleet/tributary/hack/`)

// moduleFiles are what pins the content of a module's build.
type moduleFiles struct {
	dir    string
	mod    []byte
	digest string // of go.mod and go.sum
}

func readModule(dir string) (moduleFiles, error) {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return moduleFiles{}, fmt.Errorf("read module: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return moduleFiles{}, fmt.Errorf("read module: %w", err)
	}
	h := sha256.New()
	h.Write(mod)
	h.Write(sum)
	return moduleFiles{dir: dir, mod: mod, digest: hex.EncodeToString(h.Sum(nil)[:4])}, nil
}

// version returns the version of a requirement.
func (m moduleFiles) version(path string) (string, error) {
	match := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(path) + ` (v\S+)`).FindSubmatch(m.mod)
	if match == nil {
		return "", fmt.Errorf("%s does not require %s", filepath.Join(m.dir, "go.mod"), path)
	}
	return string(match[1]), nil
}

// Errors of [Find] and of installing CRDs, for errors.Is. Each error says in a sentence what to do.
var (
	// ErrNoGo: the go tool is missing.
	ErrNoGo = errors.New("the go tool is not in PATH: install Go, or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd")
	// ErrNoSource: the modules that say what to build are not there, since this program runs outside a checkout.
	ErrNoSource = errors.New("the build of kube-apiserver and etcd was not found: run in a checkout of Tributary, or set KUBEBUILDER_ASSETS to a folder with both")
	// ErrNoModules: Go modules could not be downloaded.
	ErrNoModules = errors.New("modules could not be downloaded: check the network and GOPROXY, or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd")
	// ErrNoSpace: the disk is full.
	ErrNoSpace = errors.New("no space left on the disk: free some, or move GOCACHE, GOMODCACHE and the user's cache folder (XDG_CACHE_HOME) to another")
)
