package controlplane

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// logTail is how much of a server's log an error quotes, in bytes.
const logTail = 2048

// process is a running server.
type process struct {
	name string
	log  string // path of its log
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // why it ended; read it after done only
}

// startProcess starts a program in a folder. leader is the process group to join, or 0 for one of its own. The
// program's output is appended to NAME.log in that folder: straight to the file, so that no goroutine copies it
// and no pipe of this process keeps go test waiting.
func startProcess(dir, name, path string, leader int, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Neither a proxy nor an ETCD_… variable of ours is meant for the servers.
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
	inGroup(p.cmd, leader)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// kill ends the process at once, paused or not, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}

// ended returns an error if the process has ended, with the last of what it said.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended (%v), its log says last:\n%s", p.name, p.cmd.ProcessState, tail(p.log))
	default:
		return nil
	}
}

// tail returns the last lines of a file.
func tail(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	whole := true
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
			return nil
		}
		whole = false
	}
	b, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return nil
	}
	if !whole { // the first line is cut
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return b
}
