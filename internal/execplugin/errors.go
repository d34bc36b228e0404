package execplugin

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by a source after it, or its runner, has been closed.
var ErrClosed = errors.New("execplugin: closed")

// Reason is why there is no credential.
type Reason string

const (
	// ReasonConfiguration: the plugin cannot be run as it is configured.
	ReasonConfiguration Reason = "Configuration"
	// ReasonNotFound: the command does not exist, or may not be executed.
	ReasonNotFound Reason = "NotFound"
	// ReasonStart: the command could not be started for another reason.
	ReasonStart Reason = "Start"
	// ReasonTimeout: the plugin did not end in time and was killed.
	ReasonTimeout Reason = "Timeout"
	// ReasonCanceled: the plugin was killed because nobody needs its credential any longer.
	ReasonCanceled Reason = "Canceled"
	// ReasonExit: the plugin exited with a code other than 0, or was killed by somebody else.
	ReasonExit Reason = "Exit"
	// ReasonOutputTooLarge: the plugin wrote more than it may and was killed.
	ReasonOutputTooLarge Reason = "OutputTooLarge"
	// ReasonOutput: what the plugin wrote is not a usable ExecCredential.
	ReasonOutput Reason = "Output"
	// ReasonExpired: the credential had expired already when the plugin returned it.
	ReasonExpired Reason = "Expired"
)

// Error says why a plugin produced no credential. It holds nothing that the plugin wrote, and none of its arguments or environment.
type Error struct {
	Command string // as configured
	Reason  Reason
	Detail  string
	// Stderr is how many bytes the plugin wrote to stderr. To see them, run it by hand: they may hold credentials.
	Stderr int
}

// Error says which plugin failed, and why.
func (e *Error) Error() string {
	s := fmt.Sprintf("credential plugin %q: %s", e.Command, e.Detail)
	if e.Stderr > 0 {
		s += fmt.Sprintf(" (its %d bytes of stderr are not shown)", e.Stderr)
	}
	return s
}

// Timeout reports whether the plugin did not end in time.
func (e *Error) Timeout() bool { return e.Reason == ReasonTimeout }
