package config

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/client-go/tools/events"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
)

// Provider is what a configuration is applied to: an [aggregate.Provider].
type Provider interface {
	Add(name string, backend backends.Backend, opts aggregate.BackendOptions) error
	Update(name string, backend backends.Backend, opts aggregate.BackendOptions) error
	Remove(ctx context.Context, name string) error
	Arrange(prefix string, names ...string) error
}

var _ Provider = (*aggregate.Provider)(nil)

// ApplyOptions are what backends are made with.
type ApplyOptions struct {
	// Kinds are those of the file. Required.
	Kinds *Registry
	// Environment is what backends are built in.
	Environment Environment
	// Events takes the Events of those backends whose hub is Environment.Local: their hub objects are there. Nil: none.
	Events events.EventRecorder
}

// Apply does what the difference says. First it builds all backends that are new or changed, and if one of them cannot be
// built, it does nothing, and the error says of each what is wrong. Then it adds, updates and removes, in this order, so that a
// cluster that moves to a new backend of its prefix is never without one; but a backend that changes its prefix is
// removed before it is added. It goes on after an error, and returns what it did, one line each, beside all errors.
//
// It blocks until removed backends are gone, or ctx ends. It must not be called concurrently for one provider.
func Apply(ctx context.Context, provider Provider, d Difference, opts ApplyOptions) (did []string, err error) {
	var problems *multierror.Error
	built := map[string]backends.Backend{}
	for _, list := range [][]Backend{d.Add, d.Update} {
		for _, b := range list {
			backend, err := b.Build(opts.Kinds, opts.Environment)
			problems = multierror.Append(problems, err)
			built[b.Name] = backend
		}
	}
	if err := problems.ErrorOrNil(); err != nil {
		return nil, fmt.Errorf("apply fleet file: nothing was changed: %w", err)
	}

	do := func(err error, what string, args ...any) {
		if err != nil {
			problems = multierror.Append(problems, err)
			return
		}
		did = append(did, fmt.Sprintf(what, args...))
	}
	again := map[string]bool{} // removed before it is added
	for _, b := range d.Add {
		again[b.Name] = true
	}
	for _, name := range d.Remove {
		if again[name] {
			do(provider.Remove(ctx, name), "removed backend %q, to add it under another prefix", name)
		}
	}
	for _, b := range d.Add {
		do(provider.Add(b.Name, built[b.Name], opts.of(b)), "added backend %q (%s) under prefix %q", b.Name, b.Kind, b.prefix())
	}
	for _, b := range d.Update {
		do(provider.Update(b.Name, built[b.Name], opts.of(b)), "updated backend %q (%s)", b.Name, b.Kind)
	}
	for _, a := range d.Arrange {
		do(provider.Arrange(a.Prefix, a.Names...), "arranged prefix %q: %s", a.Prefix, strings.Join(a.Names, ", "))
	}
	for _, name := range d.Remove {
		if !again[name] {
			do(provider.Remove(ctx, name), "removed backend %q", name)
		}
	}
	return did, problems.ErrorOrNil()
}

// of returns what a provider is told about a backend.
func (o ApplyOptions) of(b Backend) aggregate.BackendOptions {
	opts := b.BackendOptions()
	if hub, ok := b.hub(); ok && hub == (Hub{}) {
		opts.Events = o.Events
	}
	return opts
}
