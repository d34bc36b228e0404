//go:build unix && !linux

package execplugin

// wait waits for the plugin. What it leaves behind when it ends by itself is not killed: without a portable way to
// learn of its end before its process ID is free again, the group to kill could be somebody else's by then.
func (g *group) wait() error { return g.cmd.Wait() }
