package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

const (
	// requestTimeout bounds every request to a hub; of a watch, it bounds the wait for the response's header.
	requestTimeout = 30 * time.Second
	// missingInterval is how often a hub is asked whether it serves a missing kind by now.
	missingInterval = 2 * time.Second
	// versionInterval is how often a hub is asked whether it serves a more preferred version by now.
	versionInterval = 30 * time.Second
)

// Kind is a kind of objects that a hub may serve.
type Kind struct {
	// Group and Resource name it, e.g. "cluster.x-k8s.io" and "clusters".
	Group, Resource string
	// Versions are those that the backend understands, the preferred one first.
	Versions []string
	// BuiltIn says that every API server serves the kind, so there is no need to ask.
	BuiltIn bool
}

// String returns "resource.group".
func (k Kind) String() string {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}.String()
}

// errNotServed says that a hub serves none of a kind's versions.
var errNotServed = errors.New("not served")

// Client talks to one hub. It has connections of its own, so that closing them disturbs nobody else. It serves one
// [Loop] at a time.
type Client struct {
	connections *connrotation.Dialer
	dynamic     dynamic.Interface
	discovery   rest.Interface

	mu  sync.Mutex
	run context.Context // ends when the client is closed

	timeout, missingInterval, versionInterval time.Duration
}

// Connect returns a client for the hub at config, which is copied. It makes no request.
func Connect(config *rest.Config) (*Client, error) {
	if config == nil {
		return nil, errors.New("connect to hub: no configuration given")
	}
	config = rest.CopyConfig(config)
	// A client-wide timeout would cut watches off. Every request has its own deadline instead.
	config.Timeout = 0
	// There are a handful of watches: the server's own fairness is protection enough.
	config.QPS = -1
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		// The hub would warn of a deprecated version at every list, and the version is the best that it serves.
		config.WarningHandler = rest.NoWarnings{}
	}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: requestTimeout, KeepAlive: requestTimeout}).DialContext
	}
	c := &Client{
		connections: connrotation.NewDialer(config.Dial),
		run:         context.Background(),
		timeout:     requestTimeout, missingInterval: missingInterval, versionInterval: versionInterval,
	}
	// A dialer of our own also keeps client-go from sharing the connections with other clients.
	config.Dial = c.dial
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to hub: %w", err)
	}
	c.dynamic, err = dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connect to hub: %w", err)
	}
	disc, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connect to hub: %w", err)
	}
	c.discovery = disc.RESTClient()
	return c, nil
}

// open lets the client make connections until it is closed.
func (c *Client) open(ctx context.Context) (closeAll func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.run = ctx
	c.mu.Unlock()
	return func() {
		cancel()
		// All of them, not only the idle ones: one whose watch was cancelled a moment ago is not idle yet.
		c.connections.CloseAll()
	}
}

// dial makes a connection, unless the client is closed. net/http goes on dialling when nobody waits for the
// connection any more.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	run := c.run
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(run, cancel)()
	conn, err := c.connections.DialContext(ctx, network, address)
	// From here on CloseAll sees the connection; if it came too early for that, run has ended.
	if err == nil && run.Err() != nil {
		err = errors.Join(run.Err(), conn.Close())
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// servedVersion returns the first of the kind's versions that the hub serves, or errNotServed.
func (c *Client) servedVersion(ctx context.Context, kind Kind) (string, error) {
	if kind.BuiltIn {
		return kind.Versions[0], nil
	}
	for _, version := range kind.Versions {
		gv := schema.GroupVersion{Group: kind.Group, Version: version}.String()
		var list metav1.APIResourceList
		reqCtx, cancel := context.WithTimeout(ctx, c.timeout)
		err := c.discovery.Get().AbsPath("/apis", kind.Group, version).Do(reqCtx).Into(&list)
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return "", fmt.Errorf("discover %s: %w", gv, err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource }) {
			return version, nil
		}
	}
	return "", errNotServed
}

// get reads one object.
func (c *Client) get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.dynamic.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// list lists a page of the objects of a kind.
func (c *Client) list(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.dynamic.Resource(gvr).Namespace(namespace).List(ctx, opts)
}

// watch watches the objects of a kind. Only opening the watch has a deadline.
func (c *Client) watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	deadline := time.AfterFunc(c.timeout, func() { cancel(context.DeadlineExceeded) })
	w, err := c.dynamic.Resource(gvr).Namespace(namespace).Watch(ctx, opts)
	if !deadline.Stop() && err == nil {
		w.Stop()
		err = context.DeadlineExceeded
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			err = context.DeadlineExceeded
		}
		cancel(nil)
		return nil, err
	}
	return &cancelledWatch{Interface: w, cancel: cancel}, nil
}

// cancelledWatch releases the watch's context when the watch is stopped.
type cancelledWatch struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

func (w *cancelledWatch) Stop() {
	w.Interface.Stop()
	w.cancel(nil)
}
