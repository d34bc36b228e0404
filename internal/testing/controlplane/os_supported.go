//go:build linux || darwin || freebsd

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryLock locks the file if nobody else has.
func tryLock(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

// free returns how many bytes may still be written to the file system of dir.
func free(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize), nil
}

// port is a TCP port of the loopback interface that stays reserved until it is closed: bound, so that nobody
// else gets it, but without listening, so that connections are refused unless a server shares the port.
type port struct {
	fd     int
	number int
}

// reservePort reserves a free port for servers that set SO_REUSEPORT.
func reservePort() (_ port, err error) {
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return port{}, fmt.Errorf("reserve port: create socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return port{}, fmt.Errorf("reserve port: share it: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())}); err != nil {
		return port{}, fmt.Errorf("reserve port: bind: %w", err)
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return port{}, fmt.Errorf("reserve port: read address: %w", err)
	}
	return port{fd: fd, number: addr.(*unix.SockaddrInet4).Port}, nil
}

func (p port) close() error { return unix.Close(p.fd) }

// inGroup puts the command into the process group of that leader when it starts; 0 makes it a leader itself.
func inGroup(cmd *exec.Cmd, leader int) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: leader}
}

// killGroup kills every process of the group.
func killGroup(leader int) error {
	if err := unix.Kill(-leader, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// pause and resume stop and continue a process.
func pause(p *os.Process) error  { return p.Signal(unix.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(unix.SIGCONT) }

// groupCommand returns a command whose whole process group is killed when ctx ends.
func groupCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	inGroup(cmd, 0)
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	return cmd
}
