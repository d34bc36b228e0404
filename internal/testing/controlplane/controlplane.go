package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say how a control plane is started. The zero value is fine.
type Options struct {
	// Name names the control plane in errors and as the cluster of its kubeconfigs. Default "cluster".
	Name string
	// CRDs are installed before Start returns.
	CRDs []CRDs
	// APIServerArgs are further flags of kube-apiserver, such as --audit-log-path=… They come last and so win.
	APIServerArgs []string
	// Progress is told of builds and of waiting for them, a line at a time. Default: standard error.
	Progress io.Writer
}

// ControlPlane is a running kube-apiserver with its etcd. Its methods may be called concurrently, though those that start,
// stop, pause or resume servers run one at a time.
type ControlPlane struct {
	opts       Options
	programs   Binaries
	dir        string // everything of this control plane: data, keys, logs; removed by Stop
	port       port
	identities *identities
	guard      *guard
	etcd       *process
	uid        string

	// turn is held by whoever starts, stops or signals servers; it guards the fields below. A channel and not a
	// mutex, for it is held across I/O and so must be left when a context ends.
	turn      chan struct{}
	apiServer *process // nil while it is stopped
	stopped   bool
}

// ErrStopped is returned by methods of a control plane that was stopped.
var ErrStopped = errors.New("control plane is stopped")

// Start starts a control plane and waits until it is ready: it answers, serves opts.CRDs, and has its system
// namespaces. It must be stopped with [ControlPlane.Stop]. ctx bounds the start alone; without a deadline it
// takes four minutes at most, besides a build (see [Find]).
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if opts.Name == "" {
		opts.Name = "cluster"
	}
	if opts.Progress == nil {
		opts.Progress = os.Stderr
	}
	programs, err := Find(ctx, opts.Progress)
	if err != nil {
		return nil, fmt.Errorf("start control plane %s: %w", opts.Name, err)
	}
	c := &ControlPlane{opts: opts, programs: programs, turn: make(chan struct{}, 1), port: port{fd: -1}}
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("start control plane %s: %w", opts.Name, errors.Join(err, c.Stop()))
	}
	return c, nil
}

// StartAll starts n control planes at once, named opts.Name-1 and so on. If one fails, none is left.
func StartAll(ctx context.Context, n int, opts Options) ([]*ControlPlane, error) {
	planes := make([]*ControlPlane, n)
	name := opts.Name
	if name == "" {
		name = "cluster"
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range planes {
		opts := opts
		opts.Name = name + "-" + strconv.Itoa(i+1)
		group.Go(func() (err error) {
			planes[i], err = Start(ctx, opts)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, StopAll(planes...))
	}
	return planes, nil
}

// StopAll stops control planes at once. Nil ones are left out.
func StopAll(planes ...*ControlPlane) error {
	errs := make([]error, len(planes))
	var wg sync.WaitGroup
	for i, c := range planes {
		if c != nil {
			wg.Go(func() { errs[i] = c.Stop() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// start does the work of Start. What it leaves behind when it fails, Stop clears away.
func (c *ControlPlane) start(ctx context.Context) (err error) {
	if c.dir, err = serverDir(); err != nil {
		return err
	}
	if c.guard, err = startGuard(c.dir); err != nil {
		return err
	}
	if c.port, err = reservePort(); err != nil {
		return err
	}
	if c.identities, err = writeIdentities(c.dir); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.waitNamespaces(ctx); err != nil {
		return err
	}
	if len(c.opts.CRDs) > 0 {
		return c.InstallCRDs(ctx, c.opts.CRDs...)
	}
	return nil
}

// serverDir creates the folder of a control plane. Its path must be short: a Unix socket's has 104 bytes at most.
func serverDir() (string, error) {
	const longest = 104 - len("/tributary-0123456789/"+etcdSocket)
	parent := os.TempDir()
	if len(parent) > longest {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "tributary-")
	if err != nil {
		return "", fmt.Errorf("create folder: %w", err)
	}
	return dir, nil
}

// waitNamespaces waits for the namespaces that the server makes for itself, and takes the cluster's identity
// from one.
func (c *ControlPlane) waitNamespaces(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("wait for namespaces: %w", err)
	}
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		err := wait.PollUntilContextTimeout(ctx, readyPoll, startLimit, true, func(ctx context.Context) (bool, error) {
			ns, err := clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if err == nil && name == metav1.NamespaceSystem {
				c.uid = string(ns.UID)
			}
			return err == nil, nil
		})
		if err != nil {
			return fmt.Errorf("wait for namespace %s: %w", name, err)
		}
	}
	return nil
}

// Stop ends the servers at once and removes their data. Stopping again does nothing.
func (c *ControlPlane) Stop() error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.stopped {
		return nil
	}
	c.stopped = true
	var errs []error
	for _, p := range []*process{c.apiServer, c.etcd} {
		if p != nil {
			p.kill()
		}
	}
	c.apiServer = nil
	if c.port.number != 0 {
		errs = append(errs, c.port.close())
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	if c.guard != nil {
		errs = append(errs, c.guard.release())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop control plane %s: %w", c.opts.Name, err)
	}
	return nil
}

// Name returns the control plane's name.
func (c *ControlPlane) Name() string { return c.opts.Name }

// URL returns the API server's address, which stays the same for the control plane's life.
func (c *ControlPlane) URL() string { return "https://127.0.0.1:" + strconv.Itoa(c.port.number) }

// CAData returns the PEM certificate of the authority that signed the API server's certificate.
func (c *ControlPlane) CAData() []byte { return c.identities.serving.pem }

// UID returns the UID of the namespace kube-system, which tells one cluster from every other.
func (c *ControlPlane) UID() string { return c.uid }

// Config returns how the administrator connects: a copy of its own for each call, without a client-side rate limit.
func (c *ControlPlane) Config() *rest.Config {
	return c.credential("admin", c.identities.admin).Config()
}

// Kubeconfig returns a kubeconfig file of the administrator.
func (c *ControlPlane) Kubeconfig() []byte {
	return c.credential("admin", c.identities.admin).Kubeconfig()
}

// Dir returns a folder that lives as long as the control plane, for instance for an audit log.
func (c *ControlPlane) Dir() string { return c.dir }

// path returns the path of a file in the control plane's folder.
func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// deadline gives ctx the deadline of a start, if it has no earlier one.
func deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s", startLimit))
}

const (
	// readyPoll is how often something that is about to become ready is looked at.
	readyPoll = 25 * time.Millisecond
	// startLimit bounds the wait for it: a loaded two-core machine that starts several servers is slow.
	startLimit = 4 * time.Minute
	// httpTimeout bounds one such look.
	httpTimeout = 5 * time.Second
)
