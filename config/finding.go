package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Finding is one thing that is wrong with a fleet file, and where. Of its own it shows names of fields and not their
// values, since somebody may have put a credential where none belongs; what a kind of backend says of its options is shown as it is.
type Finding struct {
	// Line and Column count from 1; 0 where the place is not known.
	Line, Column int
	// Err has the path of the field, such as backends[2].options.labelSelector, and what is wrong with it. Its BadValue is
	// always empty.
	Err *field.Error
}

// Error returns "line 3, column 5: backends[0].name: required".
func (f *Finding) Error() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", f.Line, f.Column)
	}
	if f.Err.Field != "" {
		b.WriteString(f.Err.Field + ": ")
	}
	b.WriteString(f.Err.Detail)
	return b.String()
}

// Unwrap makes errors.As find the *field.Error.
func (f *Finding) Unwrap() error { return f.Err }

// Findings returns what is wrong with a file according to an error of this package, in the order of the lines, or nil if
// the error is about something else.
func Findings(err error) []*Finding {
	if many, ok := errors.AsType[*multierror.Error](err); ok {
		var all []*Finding
		for _, e := range many.Errors {
			if f, ok := errors.AsType[*Finding](e); ok {
				all = append(all, f)
			}
		}
		return all
	}
	if f, ok := errors.AsType[*Finding](err); ok {
		return []*Finding{f}
	}
	return nil
}

// joined returns the findings as one error in the order of their lines, or nil.
func joined(found []*Finding) error {
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b *Finding) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	all := &multierror.Error{ErrorFormat: func(errs []error) string {
		lines := make([]string, len(errs))
		for i, e := range errs {
			lines[i] = e.Error()
		}
		if len(lines) == 1 {
			return lines[0]
		}
		return fmt.Sprintf("%d findings:\n  %s", len(lines), strings.Join(lines, "\n  "))
	}}
	for _, f := range found {
		all.Errors = append(all.Errors, f)
	}
	return all
}

// nearest returns which of the names is meant by a misspelt one, or "".
func nearest(name string, names []string) string {
	best, least := "", 1+max(1, min(len(name)/2, 2+len(name)/6)) // two letters that are swapped are two changes
	if len(name) > 64 {
		return ""
	}
	for _, candidate := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
