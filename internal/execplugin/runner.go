package execplugin

import (
	"context"
	"errors"

	"github.com/tributary-fleet/tributary/connection"
)

// Options are how plugins are run.
type Options struct{}

// Runner runs plugins.
type Runner struct{}

// NewRunner returns a runner.
func NewRunner(Options) *Runner { return &Runner{} }

// Source is one plugin's credential.
type Source struct{}

// Source returns the source of a plugin's credential for an endpoint.
func (r *Runner) Source(connection.Exec, connection.Endpoint) *Source { return &Source{} }

// Credential returns the credential.
func (s *Source) Credential(context.Context) (*Credential, error) { return nil, errors.ErrUnsupported }

// Refresh returns a credential that is not stale.
func (s *Source) Refresh(context.Context, *Credential) (*Credential, error) {
	return nil, errors.ErrUnsupported
}

// Close releases the source.
func (s *Source) Close() {}
