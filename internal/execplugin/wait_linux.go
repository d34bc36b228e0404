package execplugin

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// wait waits for the plugin and kills what it has left behind. Between the plugin's exit and cmd.Wait its process ID is
// still taken, so that the group to kill is certainly its own.
func (g *group) wait() error {
	for {
		err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	g.kill(true)
	err := g.cmd.Wait()
	reap(g.cmd.Process.Pid)
	return err
}

// reapTime bounds how long the end of killed children is waited for.
const reapTime = time.Second

// reap takes the exit status of a killed group's children where they have become this process's own: it is the first process of a
// container, or a subreaper, and they would stay zombies for ever. Elsewhere it has nothing to wait for and returns at once. The group's number was
// freed a moment ago at the earliest, and the kernel goes through all others before it hands one out again.
func reap(group int) {
	for end := time.Now().Add(reapTime); ; {
		switch pid, err := unix.Wait4(-group, nil, unix.WNOHANG, nil); {
		case errors.Is(err, unix.EINTR), err == nil && pid > 0:
			continue
		case err != nil || time.Now().After(end): // no such child, or one that the kernel cannot end now
			return
		}
		time.Sleep(time.Millisecond)
	}
}
