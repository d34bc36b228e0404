package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// etcdSocket is the Unix socket that etcd listens on, and peerSocket the one for peers, of which there are none.
// etcd takes a socket's name from a URL's host and wants a port with it: both are part of the file's name.
const (
	etcdSocket = "client:1"
	peerSocket = "peer:1"
)

// startEtcd starts etcd and waits until it listens. It listens on a Unix socket in the control plane's folder, so that
// no port can clash, and nobody else on the machine reaches it.
func (c *ControlPlane) startEtcd(ctx context.Context) (err error) {
	const client, peer = "unix://" + etcdSocket, "unix://" + peerSocket // in the working directory
	c.etcd, err = startProcess(c.dir, "etcd", c.programs.Etcd, 0,
		"--name=default",
		"--data-dir="+c.path("etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer,
		"--unsafe-no-fsync", // the data outlives no crash of the machine anyway
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	if err := c.guard.watch(c.etcd.cmd.Process.Pid); err != nil {
		return err
	}
	return c.etcd.await(ctx, func(ctx context.Context) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.path(etcdSocket))
		return err == nil && conn.Close() == nil
	})
}

// runAPIServer starts kube-apiserver and waits until it is ready. The caller has the turn.
func (c *ControlPlane) runAPIServer(ctx context.Context) error {
	args := append([]string{
		"--etcd-servers=unix://" + c.path(etcdSocket),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.port.number),
		"--permit-port-sharing", // with the socket that reserves the port
		"--tls-cert-file=" + c.path("tls.crt"),
		"--tls-private-key-file=" + c.path("tls.key"),
		"--client-ca-file=" + c.path("client-ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("sa.pub"),
		"--service-account-signing-key-file=" + c.path("sa.key"),
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount", // it wants default service accounts, which a controller makes
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", // or a restart waits for the lease of the server that was killed
		"--allow-privileged",
		"--profiling=false",
	}, c.opts.APIServerArgs...)
	// The server joins etcd's process group, which the guard watches.
	server, err := startProcess(c.dir, "kube-apiserver", c.programs.APIServer, c.etcd.cmd.Process.Pid, args...)
	if err != nil {
		return err
	}
	ready, done, err := c.readyProbe()
	if err != nil {
		server.kill()
		return err
	}
	defer done()
	if err := server.await(ctx, ready); err != nil {
		server.kill()
		return err
	}
	c.apiServer = server
	return nil
}

// readyProbe returns a function that reports whether the server says that it is ready, and one to call when it
// is no longer needed.
func (c *ControlPlane) readyProbe() (ready func(context.Context) bool, done func(), err error) {
	cert, err := tls.X509KeyPair(c.identities.admin.cert, c.identities.admin.key)
	if err != nil {
		return nil, nil, fmt.Errorf("load administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.identities.serving.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}}
	client := &http.Client{Transport: transport, Timeout: httpTimeout}
	return func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/readyz", nil)
		if err != nil {
			return false
		}
		resp, err := client.Do(req)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, transport.CloseIdleConnections, nil
}

// await waits until the process is ready, has ended, or ctx ends.
func (p *process) await(ctx context.Context, ready func(context.Context) bool) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for !ready(ctx) {
		select {
		case <-p.done:
			return p.ended()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w, its log says last:\n%s", p.name, context.Cause(ctx), tail(p.log))
		case <-poll.C:
		}
	}
	return p.ended() // or what answered was something else
}

// errNotRunning is returned where the API server is asked for something while it is stopped.
var errNotRunning = errors.New("kube-apiserver is not running")

// do runs f when nobody else starts, stops or signals servers.
func (c *ControlPlane) do(ctx context.Context, what string, f func() error) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%s of %s: %w", what, c.opts.Name, context.Cause(ctx))
	}
	err := ErrStopped
	if !c.stopped {
		err = f()
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", what, c.opts.Name, err)
	}
	return nil
}

// StopAPIServer ends the API server at once, as a crash would. Connections are refused until [ControlPlane.StartAPIServer];
// the data stays. Stopping it again does nothing.
func (c *ControlPlane) StopAPIServer() error {
	return c.do(context.Background(), "stop API server", func() error {
		if c.apiServer != nil {
			c.apiServer.kill()
			c.apiServer = nil
		}
		return nil
	})
}

// StartAPIServer starts an API server that was stopped, at the same address and with the same data, and waits
// until it is ready. Starting one that runs does nothing.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	return c.do(ctx, "start API server", func() error {
		if c.apiServer != nil {
			return c.apiServer.ended()
		}
		return c.runAPIServer(ctx)
	})
}

// Restart stops and starts the API server. Nobody's earlier answers are remembered: the server's caches of
// tokens are empty afterwards.
func (c *ControlPlane) Restart(ctx context.Context) error {
	if err := c.StopAPIServer(); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// Pause makes the API server one that accepts connections and never answers, until [ControlPlane.Resume]. Open
// connections stay open.
func (c *ControlPlane) Pause() error {
	return c.do(context.Background(), "pause API server", func() error {
		if c.apiServer == nil {
			return errNotRunning
		}
		return pause(c.apiServer.cmd.Process)
	})
}

// Resume continues a paused API server, which then answers whatever has come meanwhile.
func (c *ControlPlane) Resume() error {
	return c.do(context.Background(), "resume API server", func() error {
		if c.apiServer == nil {
			return errNotRunning
		}
		return resume(c.apiServer.cmd.Process)
	})
}
