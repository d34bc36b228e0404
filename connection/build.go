package connection

import (
	"context"
	"encoding/base64"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// builder makes a Spec of entries that policy has accepted.
type builder struct {
	ctx    context.Context
	dir    string
	read   func(context.Context, string) ([]byte, error) // nil: the inventory cannot refer to files
	result *Result
	noted  []string // what has no effect in the entry that is being built
}

// built is what became of an entry. It is kept, since many contexts may use one entry: a large one would otherwise
// be worked on again for each of them.
type built[T any] struct {
	done    bool
	value   T
	ignored []string
	err     error
}

// once builds an entry if that has not been done.
func once[T any](b *builder, kept *built[T], build func() (T, error)) (T, error) {
	if !kept.done {
		b.noted = nil
		kept.value, kept.err = build()
		kept.ignored, kept.done = b.noted, true
	}
	b.result.Ignored = append(b.result.Ignored, kept.ignored...)
	return kept.value, kept.err
}

// build applies policy to a cluster and a user that cannot refer to files, and makes a connection of them.
func build(policy Policy, c *rawCluster, u *rawUser, r Result, found ...*PolicyError) (_ Result, err error) {
	found = policy.checkUser(u, policy.checkCluster(c, found))
	if r.Violations, err = policy.decide(found); err != nil {
		return r, err
	}
	b := builder{ctx: context.Background(), result: &r}
	err = b.spec(c, u)
	return r, err
}

// spec sets the result's Spec.
func (b *builder) spec(c *rawCluster, u *rawUser) error {
	if c.problem != nil {
		return c.problem
	}
	if u.problem != nil {
		return u.problem
	}
	b.result.Ignored = append(append(b.result.Ignored, c.ignored...), u.ignored...)
	b.refer(c, u)
	endpoint, err := once(b, &c.built, func() (Endpoint, error) { return b.endpoint(c) })
	if err != nil {
		return err
	}
	auth, err := once(b, &u.built, func() (Auth, error) { return b.auth(u) })
	if err != nil {
		return err
	}
	if auth.Exec != nil {
		own := *auth.Exec // another context may run the plugin for another cluster
		own.ClusterConfig = NewSecret(c.execConfig)
		auth.Exec = &own
	}
	if c.server.hasUser {
		// As net/http does it: user information is sent as basic auth where nothing else is.
		if c.server.username == "" || c.server.password == "" {
			return c.failure(c.names.server, ProblemNoCredential)
		}
		if !auth.Token.IsZero() || auth.Username != "" {
			return c.failure(c.names.server, ProblemConflict)
		}
		auth.Username, auth.Password = c.server.username, NewSecret(c.server.password)
	}
	b.result.Spec = Spec{Endpoint: endpoint, Auth: auth}
	return nil
}

// refer notes which files the entries refer to, before the first is opened, so that a file that is missing or
// broken can be watched, too.
func (b *builder) refer(c *rawCluster, u *rawUser) {
	if b.dir == "" && b.read == nil {
		return
	}
	note := func(path, over string) {
		if path != "" && over == "" {
			if resolved, ok := b.resolve(path); ok {
				b.result.Files = append(b.result.Files, resolved)
			}
		}
	}
	note(c.caFile, c.caData.text)
	note(u.tokenFile, "")
	note(u.certFile, u.certData.text)
	note(u.keyFile, u.keyData.text)
	slices.Sort(b.result.Files)
	b.result.Files = slices.Compact(b.result.Files)
}

// ignore notes a field of e that has no effect.
func (b *builder) ignore(e *entry, field string) {
	if len(b.noted) < mostIgnored {
		b.noted = append(b.noted, e.field(field))
	}
}

func (b *builder) resolve(path string) (string, bool) {
	switch {
	case filepath.IsAbs(path):
		return filepath.Clean(path), true
	case b.dir != "":
		return filepath.Join(b.dir, path), true
	default:
		return "", false
	}
}

// failure is a problem with a field of the entry.
func (e *entry) failure(field string, p Problem) *ParseError {
	return &ParseError{Object: e.object, Field: e.field(field), Problem: p}
}

// file reads a file that a field of e refers to.
func (b *builder) file(e *entry, field, path string) ([]byte, error) {
	resolved, ok := b.resolve(path)
	if !ok || b.read == nil {
		return nil, e.failure(field, ProblemNoFolder)
	}
	ctx, cancel := context.WithTimeout(b.ctx, fileTimeout)
	defer cancel()
	data, err := b.read(ctx, resolved)
	if err != nil {
		return nil, unreadable(e, field, err)
	}
	if len(data) > DefaultMaxSize {
		return nil, e.failure(field, ProblemFileTooLarge)
	}
	return data, nil
}

// bytes returns the data of a field, or of the file that another field refers to, and the name of the field
// that it came from. Data wins, as in client-go.
func (b *builder) bytes(e *entry, dataField string, data encoded, fileField, path string) ([]byte, string, error) {
	if data.text != "" {
		if path != "" {
			b.ignore(e, fileField)
		}
		if !data.base64 {
			return []byte(data.text), dataField, nil
		}
		decoded, err := base64.StdEncoding.DecodeString(data.text)
		if err != nil {
			f := e.failure(dataField, ProblemBase64)
			f.Line = data.line
			return nil, dataField, f
		}
		return decoded, dataField, nil
	}
	if path == "" {
		return nil, dataField, nil
	}
	read, err := b.file(e, fileField, path)
	return read, fileField, err
}

func (b *builder) endpoint(c *rawCluster) (Endpoint, error) {
	e := Endpoint{
		TLSServerName: c.tlsServerName, InsecureSkipTLSVerify: c.insecure, DisableCompression: c.disableCompression,
	}
	if err := c.usable(c.names.server, &c.server); err != nil {
		return e, err
	}
	e.Server = c.server.String()
	if c.hasProxy {
		if err := c.usable(c.names.proxy, &c.proxy); err != nil {
			return e, err
		}
		if c.proxy.path != "" {
			return e, c.failure(c.names.proxy, ProblemURL)
		}
		if c.proxy.hasUser && (c.proxy.username == "" || c.proxy.password == "") {
			// A user name alone is often a token, and user names are shown.
			return e, c.failure(c.names.proxy, ProblemNoCredential)
		}
		e.Proxy = Proxy{URL: c.proxy.String(), Username: c.proxy.username, Password: NewSecret(c.proxy.password)}
	}
	if c.tlsServerName != "" {
		if _, bad := parseHost(strings.ToLower(c.tlsServerName)); bad {
			return e, c.failure(c.names.tlsServerName, ProblemHostName)
		}
	}
	ca, field, err := b.bytes(&c.entry, c.names.caData, c.caData, c.names.caFile, c.caFile)
	if err != nil {
		return e, err
	}
	if ca != nil {
		if c.insecure {
			return e, c.failure(c.names.insecure, ProblemConflict) // with the CA; client-go refuses it, too
		}
		certificates, _, problem := certificatesOf(ca, func() { b.ignore(&c.entry, field+" (a block that is no certificate)") })
		if problem != "" {
			return e, c.failure(field, problem)
		}
		e.CAData = certificates
	}
	return e, nil
}

// usable returns what is wrong with the URL in a field.
func (e *entry) usable(field string, a *address) error {
	switch {
	case a.problem != "":
		return e.failure(field, a.problem)
	case a.badHost:
		return e.failure(field, ProblemHostName)
	}
	return nil
}

func (b *builder) auth(u *rawUser) (a Auth, err error) {
	if a.Token, err = b.token(u); err != nil {
		return a, err
	}
	if a.ClientCertificateData, a.ClientKeyData, err = b.clientCertificate(u); err != nil {
		return a, err
	}
	switch {
	case (u.username == "") != (u.password == ""):
		return a, u.failure(u.names.basic, ProblemNoCredential)
	case u.username != "" && !a.Token.IsZero():
		return a, u.failure(u.names.basic, ProblemConflict) // with the token; client-go refuses it, too
	case strings.ContainsAny(u.username, ":\x00\r\n") || strings.ContainsAny(u.password, "\x00\r\n"):
		return a, u.failure(u.names.basic, ProblemInvalidCharacter)
	}
	a.Username, a.Password = u.username, NewSecret(u.password)
	if u.exec != nil {
		if a.Exec, err = u.plugin(); err != nil {
			return a, err
		}
	}
	if a.Impersonate, err = u.impersonation(); err != nil {
		return a, err
	}
	if u.mentions && a.Token.IsZero() && a.ClientCertificateData == nil && a.Username == "" && a.Exec == nil {
		return a, u.failure(u.names.any, ProblemNoCredential)
	}
	return a, nil
}

func (b *builder) token(u *rawUser) (Secret, error) {
	text, field := u.token, u.names.token
	if u.tokenFile != "" {
		if u.token != "" {
			b.ignore(&u.entry, field)
		}
		field = u.names.tokenFile
		data, err := b.file(&u.entry, field, u.tokenFile)
		if err != nil {
			return Secret{}, err
		}
		text = string(data)
	} else if text == "" {
		return Secret{}, nil
	}
	token, problem := cleanToken(text)
	if problem != "" {
		return Secret{}, u.failure(field, problem)
	}
	return NewSecret(token), nil
}

// cleanToken returns a token without the space around it.
func cleanToken(text string) (string, Problem) {
	token := strings.TrimSpace(text)
	if token == "" {
		return "", ProblemNoCredential
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c >= 0x7f {
			return "", ProblemTokenCharacters
		}
	}
	const encodedBrace = "ZXlK" // base64 of "eyJ", which is how a JWT starts
	if strings.HasPrefix(token, encodedBrace) {
		if decoded, err := base64.StdEncoding.DecodeString(token); err == nil && strings.Count(string(decoded), ".") == 2 {
			return "", ProblemDoubleBase64
		}
	}
	return token, ""
}

func (b *builder) clientCertificate(u *rawUser) ([]byte, Secret, error) {
	cert, certField, err := b.bytes(&u.entry, u.names.certData, u.certData, u.names.certFile, u.certFile)
	if err != nil {
		return nil, Secret{}, err
	}
	key, keyField, err := b.bytes(&u.entry, u.names.keyData, u.keyData, u.names.keyFile, u.keyFile)
	if err != nil {
		return nil, Secret{}, err
	}
	switch {
	case cert == nil && key == nil:
		return nil, Secret{}, nil
	case cert == nil:
		return nil, Secret{}, u.failure(certField, ProblemMissing)
	case key == nil:
		return nil, Secret{}, u.failure(keyField, ProblemMissing)
	}
	// A file with both, as kubelets have, is fine: the key is not kept with the certificates.
	certificates, leaf, problem := certificatesOf(cert, func() {})
	if problem != "" {
		return nil, Secret{}, u.failure(certField, problem)
	}
	privateKey, problem := privateKeyOf(key, leaf)
	if problem != "" {
		return nil, Secret{}, u.failure(keyField, problem)
	}
	return certificates, NewSecret(privateKey), nil
}

func (u *rawUser) plugin() (*Exec, error) {
	x, name := u.exec, u.names.exec
	switch {
	case x.command == "":
		return nil, u.failure(name+".command", ProblemMissing)
	case strings.ContainsRune(x.command, filepath.Separator) && !filepath.IsAbs(x.command):
		return nil, u.failure(name+".command", ProblemNoFolder)
	case x.apiVersion == "":
		return nil, u.failure(name+".apiVersion", ProblemMissing)
	case x.apiVersion != execV1 && x.apiVersion != execV1beta1:
		return nil, u.failure(name+".apiVersion", ProblemExecVersion)
	case x.interactiveMode == "Always":
		return nil, u.failure(name+".interactiveMode", ProblemInteractive)
	case x.interactiveMode != "" && x.interactiveMode != "Never" && x.interactiveMode != "IfAvailable":
		return nil, u.failure(name+".interactiveMode", ProblemType)
	case strings.ContainsRune(x.command, 0):
		return nil, u.failure(name+".command", ProblemInvalidCharacter)
	}
	exec := &Exec{Command: x.command, APIVersion: x.apiVersion, ProvideClusterInfo: x.provideClusterInfo, Env: x.env}
	if filepath.IsAbs(x.command) {
		exec.Command = filepath.Clean(x.command) // as policy compared it
	}
	for _, arg := range x.args {
		if strings.ContainsRune(arg, 0) {
			return nil, u.failure(name+".args", ProblemInvalidCharacter)
		}
		exec.Args = append(exec.Args, NewSecret(arg))
	}
	for _, v := range x.env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.ContainsRune(v.Value.Reveal(), 0) {
			return nil, u.failure(name+".env", ProblemInvalidCharacter)
		}
	}
	return exec, nil
}

// The versions of the exec protocol.
const (
	execV1      = "client.authentication.k8s.io/v1"
	execV1beta1 = "client.authentication.k8s.io/v1beta1"
)

func (u *rawUser) impersonation() (Impersonation, error) {
	if !u.impersonates {
		return Impersonation{}, nil
	}
	if u.emptyImpersonation {
		return Impersonation{}, u.failure("as", ProblemEmptyValue)
	}
	if u.impersonate.UserName == "" {
		return Impersonation{}, u.failure("as", ProblemMissing) // the API server wants a user with the rest
	}
	values := append([]string{u.impersonate.UserName, u.impersonate.UID}, u.impersonate.Groups...)
	for _, k := range slices.Sorted(maps.Keys(u.impersonate.Extra)) {
		values = append(append(values, k), u.impersonate.Extra[k]...)
	}
	for _, v := range values {
		if strings.ContainsAny(v, "\x00\r\n") {
			return Impersonation{}, u.failure("as", ProblemInvalidCharacter)
		}
	}
	return u.impersonate, nil
}
