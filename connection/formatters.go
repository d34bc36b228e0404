package connection

import (
	"fmt"

	"github.com/go-logr/logr"
)

// Every type that holds a credential has the whole set of formatting methods, since a library looks for one of them
// only. Where it can call none, in an unexported field of somebody's struct, Secret hides the value itself.
var (
	_ logr.Marshaler = Spec{}
	_ logr.Marshaler = Endpoint{}
	_ logr.Marshaler = Proxy{}
	_ logr.Marshaler = Auth{}
	_ logr.Marshaler = Exec{}
	_ logr.Marshaler = EnvVar{}
)

// String describes the connection in one line, without credentials.
func (s Spec) String() string { return s.shown().String() }

// GoString returns what String returns.
func (s Spec) GoString() string { return s.String() }

// Format prints what String returns, whatever the verb; %q quotes it.
func (s Spec) Format(f fmt.State, verb rune) { s.shown().format(f, verb) }

// MarshalJSON describes the connection as an object, without credentials.
func (s Spec) MarshalJSON() ([]byte, error) { return s.shown().json() }

// MarshalYAML is MarshalJSON for YAML libraries.
func (s Spec) MarshalYAML() (any, error) { return s.shown().object(), nil }

// MarshalLog is MarshalJSON for logr.
func (s Spec) MarshalLog() any { return s.shown().object() }

// String describes the endpoint in one line, without credentials.
func (e Endpoint) String() string { return e.shown().String() }

// GoString returns what String returns.
func (e Endpoint) GoString() string { return e.String() }

// Format prints what String returns, whatever the verb; %q quotes it.
func (e Endpoint) Format(f fmt.State, verb rune) { e.shown().format(f, verb) }

// MarshalJSON describes the endpoint as an object, without credentials.
func (e Endpoint) MarshalJSON() ([]byte, error) { return e.shown().json() }

// MarshalYAML is MarshalJSON for YAML libraries.
func (e Endpoint) MarshalYAML() (any, error) { return e.shown().object(), nil }

// MarshalLog is MarshalJSON for logr.
func (e Endpoint) MarshalLog() any { return e.shown().object() }

// String describes the proxy in one line, without credentials.
func (p Proxy) String() string { return p.shown().String() }

// GoString returns what String returns.
func (p Proxy) GoString() string { return p.String() }

// Format prints what String returns, whatever the verb; %q quotes it.
func (p Proxy) Format(f fmt.State, verb rune) { p.shown().format(f, verb) }

// MarshalJSON describes the proxy as an object, without credentials.
func (p Proxy) MarshalJSON() ([]byte, error) { return p.shown().json() }

// MarshalYAML is MarshalJSON for YAML libraries.
func (p Proxy) MarshalYAML() (any, error) { return p.shown().object(), nil }

// MarshalLog is MarshalJSON for logr.
func (p Proxy) MarshalLog() any { return p.shown().object() }

// String describes how to authenticate in one line, without credentials.
func (a Auth) String() string { return a.shown().String() }

// GoString returns what String returns.
func (a Auth) GoString() string { return a.String() }

// Format prints what String returns, whatever the verb; %q quotes it.
func (a Auth) Format(f fmt.State, verb rune) { a.shown().format(f, verb) }

// MarshalJSON describes how to authenticate as an object, without credentials.
func (a Auth) MarshalJSON() ([]byte, error) { return a.shown().json() }

// MarshalYAML is MarshalJSON for YAML libraries.
func (a Auth) MarshalYAML() (any, error) { return a.shown().object(), nil }

// MarshalLog is MarshalJSON for logr.
func (a Auth) MarshalLog() any { return a.shown().object() }

// String describes the plugin in one line, without credentials.
func (e Exec) String() string { return e.shown().String() }

// GoString returns what String returns.
func (e Exec) GoString() string { return e.String() }

// Format prints what String returns, whatever the verb; %q quotes it.
func (e Exec) Format(f fmt.State, verb rune) { e.shown().format(f, verb) }

// MarshalJSON describes the plugin as an object, without credentials.
func (e Exec) MarshalJSON() ([]byte, error) { return e.shown().json() }

// MarshalYAML is MarshalJSON for YAML libraries.
func (e Exec) MarshalYAML() (any, error) { return e.shown().object(), nil }

// MarshalLog is MarshalJSON for logr.
func (e Exec) MarshalLog() any { return e.shown().object() }

// String describes the variable in one line, without credentials.
func (v EnvVar) String() string { return v.shown().String() }

// GoString returns what String returns.
func (v EnvVar) GoString() string { return v.String() }

// Format prints what String returns, whatever the verb; %q quotes it.
func (v EnvVar) Format(f fmt.State, verb rune) { v.shown().format(f, verb) }

// MarshalJSON describes the variable as an object, without credentials.
func (v EnvVar) MarshalJSON() ([]byte, error) { return v.shown().json() }

// MarshalYAML is MarshalJSON for YAML libraries.
func (v EnvVar) MarshalYAML() (any, error) { return v.shown().object(), nil }

// MarshalLog is MarshalJSON for logr.
func (v EnvVar) MarshalLog() any { return v.shown().object() }
