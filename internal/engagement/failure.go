package engagement

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/restmapper"
	"github.com/tributary-fleet/tributary/internal/transport"
)

// errNotAPI says that an answer was no answer of a Kubernetes API server.
var errNotAPI = errors.New("the answer is not that of a Kubernetes API server")

// statusError is an HTTP status other than 2xx. The server's own text is left out: it may repeat what was sent.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("server answered %d %s", e.code, http.StatusText(e.code))
}

// unwrapURL takes off net/http's *url.Error, which repeats method and URL.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// classify turns an error of a connection into a reason to alert on and a message to read. The message of an
// error that is not known here is its text: everything below makes its errors without secrets.
func classify(err error) Failure {
	return Failure{Reason: reasonOf(err), Message: err.Error()}
}

func reasonOf(err error) backends.Reason {
	var (
		netErr    net.Error
		opErr     *net.OpError
		dnsErr    *net.DNSError
		certErr   *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		alert     tls.AlertError
		record    tls.RecordHeaderError
		plugin    *transport.CredentialError
		unusable  *transport.SpecError
	)
	switch code := status(err); {
	case code == http.StatusUnauthorized || apierrors.IsUnauthorized(err):
		return backends.ReasonUnauthorized
	case code == http.StatusForbidden || apierrors.IsForbidden(err):
		return backends.ReasonForbidden
	case code != 0:
		return backends.ReasonServerError
	case errors.As(err, &plugin):
		return backends.ReasonPluginFailed
	case errors.As(err, &unusable):
		return backends.ReasonInvalidAccess
	case errors.As(err, &certErr), errors.As(err, &authority), errors.As(err, &alert), errors.As(err, &record):
		return backends.ReasonTLSFailed
	case errors.Is(err, errNotAPI), errors.Is(err, restmapper.ErrInvalidResponse):
		return backends.ReasonInvalidResponse
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return backends.ReasonTimeout
	case errors.As(err, &opErr), errors.As(err, &dnsErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return backends.ReasonUnreachable
	case apierrors.ReasonForError(err) != "":
		return backends.ReasonServerError
	default:
		return backends.ReasonUnreachable
	}
}
