// Package connection describes how a cluster is reached, as a value that is safe to keep, compare and log,
// and reads such values from what inventories hold: kubeconfigs, ClusterProfiles with access providers,
// Argo CD cluster Secrets, and pairs of a token and a CA.
//
// Nothing that an inventory says is believed. A [Spec] is rebuilt field by field from an allowlist: what the
// code does not know is dropped, and its name reported in [Result].Ignored. A [Policy] decides, before
// anything is opened, executed or dialled, what is accepted at all; its zero value is strict, and a refusal
// is a [*PolicyError] that names the field and the rule. Data that cannot be used is a [*ParseError]. Both are
// worded by this package alone: the error text of a YAML, JSON, PEM or URL parser may quote credentials, and is
// never passed on.
//
// A Spec holds data and never a path. Where a policy allows references to files, the parser reads them,
// bounded in size and time, and reports their paths so that they can be watched.
//
// # What becomes of odd kubeconfigs
//
//   - No current context: the only context is used; with several, or none, it is an error. A current or
//     asked-for context that does not exist is an error.
//   - Blocks that are nested deeper than 64 levels are an error, and so is UTF-16.
//   - A byte order mark of UTF-8, CRLF, a leading "---", and JSON are fine. A second document that says anything, a key
//     given twice anywhere, an alias, a merge key and a tag other than !!str are errors: two readers of such a
//     file may see two different connections.
//   - Two clusters, users or contexts of one name harm the contexts that use the name.
//   - A server needs a scheme (client-go takes one without as plain HTTP, without credentials), a host that
//     is an IP address or a DNS name, a port from 1 to 65535 if any, and neither query nor fragment. Its path is
//     clean: one with . or .. or // in it may lead elsewhere behind a proxy.
//   - PEM data is rebuilt from its certificates: text around them is dropped, other blocks are dropped and
//     reported, and a certificate that does not parse or is cut off is an error. Data that was encoded in base64
//     twice is an error of its own.
//   - A client certificate and its key come together and match.
//   - Space around a token is dropped; space or control characters within it are an error, since every request
//     would fail.
//   - Data wins over a reference to a file, except for the token, whose file wins, as in client-go. What lost is
//     reported as ignored and not opened, yet policy looks at it.
//   - An exec plugin never has a terminal: interactiveMode may be absent, Never or IfAvailable, and Always is an
//     error.
//   - Impersonation with an empty value is an error, even where impersonation is allowed: such values once made
//     controllers act with their own rights (CVE-2026-23990).
//   - A user that mentions credentials, all of them empty, is an error; a user that mentions none is anonymous.
//   - A number or truth value without quotes, where a string is expected, is taken as it is written.
package connection
