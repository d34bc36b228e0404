//go:build unix

package faultproxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// listen listens on an address that reserve may hold as well.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}); controlErr != nil {
			return controlErr
		}
		return err
	}}
	return config.Listen(ctx, "tcp4", addr)
}

// reserve holds a port with a socket that is bound to it and does not listen, so that nobody else gets it while it is closed.
func reserve(addr string) (release func(), err error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve %s: %w", addr, err)
	}
	unix.CloseOnExec(fd)
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		// As Go's listeners: without it, connections in TIME_WAIT would forbid the port.
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve %s: %w", addr, err)
	}
	return func() { _ = unix.Close(fd) }, nil
}
