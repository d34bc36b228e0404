//go:build !unix

package faultproxy

import (
	"context"
	"net"
)

func listen(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp4", addr)
}

// reserve cannot hold a port here: somebody else may get it while it is closed.
func reserve(string) (release func(), err error) { return func() {}, nil }
