//go:build unix

package execplugin

import (
	"os/exec"
	"sync"
	"syscall"
)

// group is a plugin with all its children that have not left its process group, of which the plugin is the leader.
type group struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	over bool // the plugin may have been waited for: its process ID, and so the group's, may be somebody else's
}

// newGroup makes cmd, which is not started yet, the leader of a group, and the end of its context the end of the group.
func newGroup(cmd *exec.Cmd) *group {
	g := &group{cmd: cmd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		g.kill(false)
		return nil
	}
	return g
}

// kill kills the group, for the last time if last.
func (g *group) kill(last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	}
	g.over = last
}
