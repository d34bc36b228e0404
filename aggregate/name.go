package aggregate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// DefaultSeparator stands between prefix and member in a public name.
const DefaultSeparator = "/"

// FormatName returns the public name of a backend's member. An empty separator means the default one.
//
// Names are injective: a prefix is a DNS label, which the separator cannot be a part of, so a name splits at the
// first separator in one way only, whatever the member is called.
func FormatName(prefix, separator, member string) multicluster.ClusterName {
	if separator == "" {
		separator = DefaultSeparator
	}
	return multicluster.ClusterName(prefix + separator + member)
}

// ParseName splits a public name into prefix and member. ok is false if it is not of that form.
func ParseName(name multicluster.ClusterName, separator string) (prefix, member string, ok bool) {
	if separator == "" {
		separator = DefaultSeparator
	}
	prefix, member, ok = strings.Cut(name.String(), separator)
	return prefix, member, ok && prefix != "" && member != ""
}

// checkSeparator refuses separators that a prefix could run into.
func checkSeparator(s string) error {
	switch c := s[0]; {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		return fmt.Errorf("separator %q: begins with %q, which a prefix may contain", s, c)
	}
	return nil
}

func checkLabel(what, value string) error {
	if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
		return fmt.Errorf("%s %q: %s", what, value, problems[0])
	}
	return nil
}
