package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrClosed is returned for requests over a transport or generation that has been closed.
	ErrClosed = errors.New("transport: closed")

	// ErrRetired is returned for a request that was still in flight when the time to drain an old generation was over.
	ErrRetired = errors.New("transport: request ended because its connection was replaced")
)

// SpecError says that a connection cannot be made ready because a field of it is unusable. It holds no value of the field.
type SpecError struct {
	Field   string // as in connection.Spec: "Endpoint.CAData"
	Problem string
}

// Error says which field is unusable, and why.
func (e *SpecError) Error() string { return "transport: " + e.Field + ": " + e.Problem }

// TimeoutError says that a request ran into the deadline of its kind. It matches context.DeadlineExceeded.
type TimeoutError struct {
	Kind  string // "discovery", "read", "write", "list", "watch", "session" or "upgrade"
	After time.Duration
}

// Error says which deadline was missed.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("transport: no (complete) answer to a %s request within %v", e.Kind, e.After)
}

// Timeout is true: this is a net.Error in spirit, and callers such as client-go look for it.
func (e *TimeoutError) Timeout() bool { return true }

// Temporary is true.
func (e *TimeoutError) Temporary() bool { return true }

// Is makes errors.Is(err, context.DeadlineExceeded) true.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// CredentialError says that the generation's credential plugin produced no credential, so the request was not sent.
type CredentialError struct {
	Err error // of package execplugin; without any output of the plugin
}

// Error says why there is no credential.
func (e *CredentialError) Error() string { return "transport: no credential: " + e.Err.Error() }

// Unwrap returns the plugin's error.
func (e *CredentialError) Unwrap() error { return e.Err }

// withheld stands for an error whose text held a credential. It unwraps to nothing, since whatever is
// wrapped can be printed.
type withheld struct{ timeout bool }

func (w withheld) Error() string {
	return "transport: request failed (message withheld: it held a credential)"
}
func (w withheld) Timeout() bool { return w.timeout }

// withhold returns err, or a substitute if err's text holds one of the secrets. Nothing in net/http is known to put a
// credential into an error; but proxies and servers choose some of these texts, and they know our credentials.
func withhold(err error, secrets []string) error {
	text := err.Error()
	for _, s := range secrets {
		if strings.Contains(text, s) {
			return withheld{timeout: isTimeout(err)}
		}
	}
	return err
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
