package connection

import (
	"fmt"
	"io"

	"github.com/go-logr/logr"
)

const redacted = "[redacted]"

// Secret is a string that no formatting shows. The value is reached through a pointer, so that even where
// fmt cannot call methods (an unexported field of somebody's struct) it prints an address and not the value.
// A debugging library that follows the pointers of unexported fields, such as spew, still finds it.
//
// Secrets are compared with [Secret.Equal]; == compares addresses. The zero Secret is the empty one.
type Secret struct {
	value *string
}

// NewSecret returns a Secret that holds value.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal returns the value. Call it only where the value is used, and never store or print what it returns.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value == nil }

// Equal reports whether both hold the same value.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

// String returns a placeholder, or nothing for the empty secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// GoString returns what String returns.
func (s Secret) GoString() string { return s.String() }

// Format prints what String returns, whatever the verb, flags and width.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns what String returns: encoding/json, YAML libraries and others call it. What they write cannot be read back.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalLog returns what String returns, for logr.
func (s Secret) MarshalLog() any { return s.String() }

var _ logr.Marshaler = Secret{}
