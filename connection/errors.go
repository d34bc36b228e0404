package connection

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Problem says what is wrong with connection data. Its text is for people and holds nothing of the data.
type Problem string

// What can be wrong with connection data.
const (
	ProblemEmpty            Problem = "is empty"
	ProblemSyntax           Problem = "is neither YAML nor JSON"
	ProblemNesting          Problem = "is nested too deeply"
	ProblemDuplicateKey     Problem = "has a key twice"
	ProblemAlias            Problem = "uses an alias, a merge key or a custom tag"
	ProblemSeveralDocuments Problem = "has more than one document"
	ProblemNotAnObject      Problem = "is not an object"
	ProblemType             Problem = "has the wrong type"
	ProblemWrongKind        Problem = "is of another kind or version"
	ProblemMissing          Problem = "is missing"
	ProblemDoubleBase64     Problem = "is encoded in base64 twice"
	ProblemBase64           Problem = "is not base64"

	ProblemNoCurrentContext Problem = "names no context, and there is not exactly one"
	ProblemNotFound         Problem = "names something that does not exist"
	ProblemAmbiguous        Problem = "names something that exists twice"
	ProblemConflict         Problem = "contradicts another field"

	ProblemNoScheme Problem = "has no scheme"
	ProblemScheme   Problem = "has an unknown scheme"
	ProblemURL      Problem = "is not a usable URL"
	ProblemPort     Problem = "has a port that is no number from 1 to 65535"
	ProblemHostName Problem = "is neither an IP address nor a DNS name"

	ProblemNotPEM           Problem = "holds no PEM block of the right type"
	ProblemTruncated        Problem = "holds a PEM block that is cut off"
	ProblemCertificate      Problem = "holds a certificate that does not parse"
	ProblemPrivateKey       Problem = "holds a private key that does not parse"
	ProblemEncryptedKey     Problem = "holds an encrypted private key"
	ProblemKeyMismatch      Problem = "does not belong to the client certificate"
	ProblemTokenCharacters  Problem = "has space, control or non-ASCII characters"
	ProblemNoCredential     Problem = "holds no credential"
	ProblemEmptyValue       Problem = "is present but empty"
	ProblemExecVersion      Problem = "is not a supported version of the exec protocol"
	ProblemInteractive      Problem = "asks for a terminal"
	ProblemInvalidCharacter Problem = "has a character that is not allowed"

	ProblemFileNotFound   Problem = "refers to a file that does not exist"
	ProblemFileForbidden  Problem = "refers to a file that may not be read"
	ProblemFileNotRegular Problem = "refers to something that is not a regular file"
	ProblemFileTooLarge   Problem = "refers to a file that is too large"
	ProblemFileTimeout    Problem = "refers to a file that was not read in time"
	ProblemFileUnreadable Problem = "refers to a file that cannot be read"
	ProblemNoFolder       Problem = "is a relative path, and there is no folder to resolve it against"
)

// ParseError says that connection data cannot be used. Its text is made of this package's words, names of
// fields, and names of clusters, users and contexts, and never of values or of another library's text.
//
// For a file that could not be read, errors.Is finds fs.ErrNotExist, fs.ErrPermission, context.Canceled
// or context.DeadlineExceeded.
type ParseError struct {
	// Object is what was parsed, such as "kubeconfig".
	Object string
	// Field is the path of the field, such as clusters["prod"].server; empty for the whole object.
	Field string
	// Line is where the trouble is, counted from 1; 0 where that is not known.
	Line int
	// Problem is what is wrong.
	Problem Problem

	// cause is one of the sentinel errors above, and never an error with a text of its own.
	cause error
}

// Error says what was parsed, and which field has which problem.
func (e *ParseError) Error() string {
	var b strings.Builder
	b.WriteString("parse " + e.Object + ": ")
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Field == "" {
		b.WriteString("it " + string(e.Problem))
	} else {
		b.WriteString(e.Field + " " + string(e.Problem))
	}
	return b.String()
}

// Unwrap returns the reason why a file could not be read, if it is one of the errors that ParseError lists.
func (e *ParseError) Unwrap() error { return e.cause }

// fieldPath names a field of a named entry of a list.
func fieldPath(list, name, field string) string {
	const longest = 80 // an entry's name is data, so it may be of any length
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "") + "…"
	}
	path := list + "[" + strconv.Quote(name) + "]"
	if field != "" {
		path += "." + field
	}
	return path
}

// joined returns the errors as one, whose text is one line, or nil if there are none.
func joined(errs []*PolicyError) error {
	if len(errs) == 0 {
		return nil
	}
	all := &multierror.Error{ErrorFormat: func(es []error) string {
		const most = 8 // data may have any number of violations, and a message has to be readable
		var texts []string
		for _, e := range es[:min(len(es), most)] {
			texts = append(texts, e.Error())
		}
		if more := len(es) - len(texts); more > 0 {
			texts = append(texts, fmt.Sprintf("and %d more", more))
		}
		return strings.Join(texts, "; ")
	}}
	for _, e := range errs {
		all.Errors = append(all.Errors, e)
	}
	return all
}
