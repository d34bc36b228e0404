//go:build !unix

package execplugin

import "os/exec"

// group is the plugin alone: there are no process groups here.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) *group { return &group{cmd} }

func (g *group) wait() error { return g.cmd.Wait() }
