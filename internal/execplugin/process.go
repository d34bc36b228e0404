package execplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tributary-fleet/tributary/connection"
)

// pipeDelay is how long a plugin's output is waited for once it has exited or been killed: somebody who left its process group
// may hold the pipe open for ever.
const pipeDelay = 500 * time.Millisecond

var errTooLarge = errors.New("too much output")

// runProcess runs the plugin once, under ctx alone. The error is an *Error.
func (r *Runner) runProcess(ctx context.Context, plugin connection.Exec, endpoint connection.Endpoint) (*Credential, error) {
	if problem := checkCommand(plugin); problem != "" {
		return nil, &Error{Command: plugin.Command, Reason: ReasonConfiguration, Detail: problem}
	}
	env, problem := environment(r.opts.Environment, plugin, endpoint)
	if problem != "" {
		return nil, &Error{Command: plugin.Command, Reason: ReasonConfiguration, Detail: problem}
	}
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	overflow := func() { kill(errTooLarge) }
	stdout := &output{limit: r.opts.MaxOutput, keep: true, overflow: overflow}
	stderr := &output{limit: r.opts.MaxOutput, overflow: overflow}

	args := make([]string, len(plugin.Args))
	for i, a := range plugin.Args {
		args[i] = a.Reveal()
	}
	// A bare name is looked up in this process's PATH, which the plugin's environment cannot change.
	cmd := exec.CommandContext(ctx, plugin.Command, args...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = stdout, stderr // and no Stdin: the null device
	cmd.WaitDelay = pipeDelay
	group := newGroup(cmd)

	err := cmd.Start()
	if err == nil {
		err = group.wait()
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // the latter: somebody keeps its output open, but it has exited with 0
		if context.Cause(ctx) != errTooLarge {
			var cred *Credential
			if cred, problem = decode(stdout.kept.Bytes(), plugin.APIVersion); problem == "" {
				return cred, nil
			}
			return nil, &Error{Command: plugin.Command, Reason: ReasonOutput, Detail: problem, Stderr: stderr.size()}
		}
	}
	reason, detail := r.failure(ctx, cmd, err)
	return nil, &Error{Command: plugin.Command, Reason: reason, Detail: detail, Stderr: stderr.size()}
}

// failure says why a run failed, in words that hold nothing of what the plugin wrote.
func (r *Runner) failure(ctx context.Context, cmd *exec.Cmd, err error) (Reason, string) {
	switch cause := context.Cause(ctx); {
	case cause == errTooLarge:
		return ReasonOutputTooLarge, fmt.Sprintf("wrote more than %d bytes and was killed", r.opts.MaxOutput)
	case errors.Is(cause, context.DeadlineExceeded):
		return ReasonTimeout, "did not end in time and was killed"
	case cause != nil:
		return ReasonCanceled, "was killed, for its credential is no longer needed"
	case cmd.ProcessState != nil:
		return ReasonExit, "ended with " + cmd.ProcessState.String() // "exit status 1" or "signal: killed"
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return ReasonNotFound, "not found"
	case errors.Is(err, fs.ErrPermission):
		return ReasonNotFound, "may not be executed"
	default:
		return ReasonStart, "cannot be started"
	}
}

// checkCommand returns what is wrong with a plugin's command, version or arguments.
func checkCommand(plugin connection.Exec) string {
	switch {
	case plugin.Command == "":
		return "no command"
	case !filepath.IsAbs(plugin.Command) && plugin.Command != filepath.Base(plugin.Command):
		return "the command is neither an absolute path nor a name to look up in PATH"
	case plugin.APIVersion != "client.authentication.k8s.io/v1" && plugin.APIVersion != "client.authentication.k8s.io/v1beta1":
		return "the apiVersion is neither client.authentication.k8s.io/v1 nor client.authentication.k8s.io/v1beta1"
	}
	for _, a := range plugin.Args {
		if strings.Contains(a.Reveal(), "\x00") {
			return "an argument holds a zero byte"
		}
	}
	return ""
}

// output takes what a plugin writes to stdout or stderr, keeps it or only counts it, and says when it gets too much.
type output struct {
	limit    int
	keep     bool
	overflow func()
	kept     bytes.Buffer
	count    atomic.Int64
}

func (o *output) Write(p []byte) (int, error) {
	if o.count.Add(int64(len(p))) > int64(o.limit) {
		o.overflow()
		return 0, errTooLarge
	}
	if o.keep {
		o.kept.Write(p)
	}
	return len(p), nil
}

func (o *output) size() int { return int(o.count.Load()) }
