//go:build !linux && !darwin && !freebsd

package controlplane

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// errSystem is returned where control planes cannot run.
var errSystem = errors.New("control planes run on Linux, macOS and FreeBSD only")

type port struct{ number int }

func (port) close() error            { return nil }
func tryLock(*os.File) (bool, error) { return false, errSystem }
func free(string) (uint64, error)    { return 0, errSystem }
func reservePort() (port, error)     { return port{}, errSystem }
func inGroup(*exec.Cmd, int)         {}
func killGroup(int) error            { return errSystem }
func pause(*os.Process) error        { return errSystem }
func resume(*os.Process) error       { return errSystem }
func groupCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}
