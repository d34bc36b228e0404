package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tributary-fleet/tributary/backends"
)

// healthOf says what err means for an inventory that wanted to read what.
func healthOf(what string, err error) backends.Health {
	reason := backends.ReasonHubUnreachable
	switch {
	case err == nil:
		return backends.Health{}
	case errors.Is(err, errNotServed) || apierrors.IsNotFound(err):
		return backends.Health{Reason: backends.ReasonKindNotServed, Message: fmt.Sprintf("%s: the hub does not serve this kind", what)}
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		reason = backends.ReasonHubForbidden
	}
	return backends.Health{Reason: reason, Message: fmt.Sprintf("%s: %s", what, cause(err))}
}

// cause is the text of err without what differs from one attempt to the next, such as a local port, so that
// the same trouble makes the same message.
func cause(err error) string {
	var status apierrors.APIStatus
	var network net.Error
	var errno syscall.Errno
	switch {
	case errors.As(err, &status):
		return status.Status().Message
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// worst combines the health of several watches: the first in the order of severity speaks for all, and says
// how many others are not well either.
func worst(all []backends.Health) backends.Health {
	severity := func(h backends.Health) int {
		switch h.Reason {
		case "":
			return 0
		case backends.ReasonStarting:
			return 1
		default:
			return 2
		}
	}
	var first backends.Health
	unwell := 0
	for _, h := range all {
		if h.Reason != "" {
			unwell++
		}
		if severity(h) > severity(first) {
			first = h
		}
	}
	if unwell > 1 {
		first.Message += fmt.Sprintf(" (and %d more)", unwell-1)
	}
	return first
}
