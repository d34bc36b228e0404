package execplugin

import (
	"errors"

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
	return g.cmd.Wait()
}
