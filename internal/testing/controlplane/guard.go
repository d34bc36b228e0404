package controlplane

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// guardScript reads process groups, a line each, until it is told that all is done. If its input ends before
// that, the process that held the other end is gone, whatever ended it: the guard then kills the groups and
// removes the folder, if there is one.
const guardScript = `
while read -r word; do
	if [ "$word" = done ]; then exit 0; fi
	groups="$groups $word"
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
if [ -n "$1" ]; then rm -rf -- "$1"; fi
`

// guard is a process that cleans up if this one dies without doing so: after a panic, a signal, a SIGKILL. A
// parent-death signal would do on Linux alone, and is tied to the thread that forked.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startGuard starts a guard of a folder.
func startGuard(dir string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", guardScript, "guard", dir)
	cmd.Stdin = r
	cmd.Dir = "/"
	inGroup(cmd, 0) // away from the terminal's Ctrl-C and from a kill of our own group
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return &guard{cmd: cmd, in: w}, nil
}

// watch adds a process group to those that the guard kills.
func (g *guard) watch(leader int) error {
	if _, err := io.WriteString(g.in, strconv.Itoa(leader)+"\n"); err != nil {
		return fmt.Errorf("tell guard: %w", err)
	}
	return nil
}

// release ends the guard without it doing anything.
func (g *guard) release() error {
	_, err := io.WriteString(g.in, "done\n")
	if cerr := g.in.Close(); err == nil {
		err = cerr
	}
	if werr := g.cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return fmt.Errorf("end guard: %w", err)
	}
	return nil
}
