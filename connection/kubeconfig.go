package connection

import (
	"context"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

const kubeconfigObject = "kubeconfig"

// KubeconfigOptions says how a kubeconfig is read. The zero value is right for a Secret.
type KubeconfigOptions struct {
	// Context is the context to use. Empty: the current context, or the only one.
	Context string
	// Policy says what is accepted.
	Policy Policy
	// Dir is the folder of the kubeconfig, against which references to files and relative commands of plugins are
	// resolved, as in client-go. Empty: there is none, and relative paths are errors.
	Dir string
	// ReadFile reads a file that the kubeconfig refers to and the policy allows. It must keep to ctx.
	// Default: [ReadFile].
	ReadFile func(ctx context.Context, path string) ([]byte, error)
}

// Result is a connection that was read.
type Result struct {
	// Name is the name of the kubeconfig's context, the Argo CD cluster or the access provider; empty if none.
	Name string
	// Spec is the connection.
	Spec Spec
	// Ignored are the names of fields that are not known or have no effect, and never values.
	Ignored []string
	// Violations are what [Policy].Audit let pass.
	Violations []*PolicyError
	// Files are the paths of the files that the connection refers to, sorted, for watching. They are given
	// with an error, too, where that is how far parsing came.
	Files []string
}

// ContextResult is one context of a kubeconfig.
type ContextResult struct {
	Result
	// Err is why the context cannot be used: what ParseKubeconfig would return. Other contexts are not concerned.
	Err error
}

// ParseKubeconfig reads one context of a kubeconfig. Its errors are a [*ParseError], or one or several
// [*PolicyError]s; where policy refuses, nothing was opened.
func ParseKubeconfig(ctx context.Context, data []byte, o KubeconfigOptions) (Result, error) {
	config, err := readKubeconfig(data, o)
	if err != nil {
		return Result{}, err
	}
	chosen, err := config.choose(o.Context)
	if err != nil {
		return Result{}, err
	}
	return config.parse(ctx, chosen)
}

// ParseContexts reads every context of a kubeconfig, in the file's order. A context that cannot be used does
// not concern the others. The error is for a file that cannot be read as a whole, or, unless
// [Policy].UsedEntriesOnly is set, for a policy violation anywhere in it. KubeconfigOptions.Context is not used.
func ParseContexts(ctx context.Context, data []byte, o KubeconfigOptions) ([]ContextResult, error) {
	config, err := readKubeconfig(data, o)
	if err != nil {
		return nil, err
	}
	results := make([]ContextResult, 0, len(config.contexts))
	seen := make(map[string]bool, len(config.contexts))
	for i := range config.contexts {
		name := config.contexts[i].name
		if seen[name] {
			continue // the first one has said that the name exists twice
		}
		seen[name] = true
		var r ContextResult
		chosen, err := config.find(name, "contexts", "")
		if err == nil {
			r.Result, err = config.parse(ctx, chosen)
		}
		r.Name, r.Err = name, err
		results = append(results, r)
	}
	return results, nil
}

// rawKubeconfig is a kubeconfig as it is written.
type rawKubeconfig struct {
	entry
	options    KubeconfigOptions
	current    string
	clusters   []rawCluster
	users      []rawUser
	contexts   []rawContext
	violations []*PolicyError // of all entries, let pass in audit mode

	clustersByName, usersByName, contextsByName index
}

type rawContext struct {
	entry
	cluster, user string
}

// readKubeconfig reads what is written and applies policy, unless that is for used entries only.
func readKubeconfig(data []byte, o KubeconfigOptions) (*rawKubeconfig, error) {
	if err := o.Policy.checkSize(kubeconfigObject, len(data)); err != nil {
		return nil, err
	}
	root, err := parseDocument(kubeconfigObject, data)
	if err != nil {
		return nil, err
	}
	if o.ReadFile == nil {
		o.ReadFile = ReadFile
	}
	c := &rawKubeconfig{entry: entry{object: kubeconfigObject}, options: o}
	c.each("", root, c.readField)
	if !o.Policy.UsedEntriesOnly {
		var found []*PolicyError
		for i := range c.clusters {
			found = o.Policy.checkCluster(&c.clusters[i], found)
		}
		for i := range c.users {
			found = o.Policy.checkUser(&c.users[i], found)
		}
		if c.violations, err = o.Policy.decide(found); err != nil {
			return nil, err
		}
	}
	if c.problem != nil {
		return nil, c.problem
	}
	c.clustersByName = indexOf(len(c.clusters), func(i int) string { return c.clusters[i].name })
	c.usersByName = indexOf(len(c.users), func(i int) string { return c.users[i].name })
	c.contextsByName = indexOf(len(c.contexts), func(i int) string { return c.contexts[i].name })
	return c, nil
}

func (c *rawKubeconfig) readField(key string, k, v *yaml.Node) {
	switch key {
	case "kind":
		if kind := c.text(key, v); kind != "" && kind != "Config" {
			c.fail(key, v.Line, ProblemWrongKind)
		}
	case "apiVersion":
		if version := c.text(key, v); version != "" && version != "v1" {
			c.fail(key, v.Line, ProblemWrongKind)
		}
	case "current-context":
		c.current = c.text(key, v)
	case "clusters":
		c.elements(key, v, func(n *yaml.Node) { c.clusters = append(c.clusters, c.readCluster(n)) })
	case "users":
		c.elements(key, v, func(n *yaml.Node) { c.users = append(c.users, c.readUser(n)) })
	case "contexts":
		c.elements(key, v, func(n *yaml.Node) { c.contexts = append(c.contexts, c.readContext(n)) })
	case "preferences", "extensions": // of kubectl and others
	default:
		c.unknown("", k, v)
	}
}

// readEntry reads an element of one of the lists: its name, and the object under key.
func (e *entry) readEntry(n *yaml.Node, list, key string, f func(key string, k, v *yaml.Node)) {
	e.object, e.list = kubeconfigObject, list
	e.each("name", n, func(k string, _, v *yaml.Node) { // the name first, since problems are told by it
		if k == "name" {
			e.name = e.text(k, v)
		}
	})
	e.each("name", n, func(k string, kn, v *yaml.Node) {
		switch k {
		case "name":
		case key:
			e.each("", v, f)
		default:
			e.unknown("", kn, v)
		}
	})
}

func (c *rawKubeconfig) readContext(n *yaml.Node) (x rawContext) {
	x.readEntry(n, "contexts", "context", func(key string, k, v *yaml.Node) {
		switch key {
		case "cluster":
			x.cluster = x.text(key, v)
		case "user":
			x.user = x.text(key, v)
		case "namespace", "extensions": // of kubectl and others
		default:
			x.unknown("", k, v)
		}
	})
	return x
}

func (c *rawKubeconfig) readCluster(n *yaml.Node) (x rawCluster) {
	x.names = clusterNames{
		server: "server", proxy: "proxy-url", caFile: "certificate-authority", caData: "certificate-authority-data",
		tlsServerName: "tls-server-name", insecure: "insecure-skip-tls-verify",
	}
	x.server.problem = ProblemMissing
	x.readEntry(n, "clusters", "cluster", func(key string, k, v *yaml.Node) {
		switch key {
		case "server":
			x.server = parseAddress(x.text(key, v), "https", "http")
		case "certificate-authority":
			x.caFile = x.text(key, v)
		case "certificate-authority-data":
			x.caData = encoded{text: x.text(key, v), base64: true, line: v.Line}
		case "tls-server-name":
			x.tlsServerName = x.text(key, v)
		case "insecure-skip-tls-verify":
			x.insecure = x.boolean(key, v)
		case "proxy-url":
			if text := x.text(key, v); text != "" {
				x.hasProxy, x.proxy = true, parseAddress(text, "http", "https", "socks5")
			}
		case "disable-compression":
			x.disableCompression = x.boolean(key, v)
		case "extensions":
			x.execConfig = x.readExecExtension(v)
		default:
			x.unknown("", k, v)
		}
	})
	return x
}

// execExtension is the extension of a cluster that is passed on to credential plugins (KEP-541).
const execExtension = "client.authentication.k8s.io/exec"

func (e *entry) readExecExtension(n *yaml.Node) (config string) {
	e.elements("extensions", n, func(element *yaml.Node) {
		var name string
		var value *yaml.Node
		e.each("extensions", element, func(key string, _, v *yaml.Node) {
			switch key {
			case "name":
				name = e.text("extensions", v)
			case "extension":
				value = v
			}
		})
		if name != execExtension || value == nil || isNull(value) {
			return
		}
		if config != "" {
			e.fail("extensions", element.Line, ProblemAmbiguous)
			return
		}
		if text, ok := toJSON(value); ok {
			config = text
		} else {
			e.fail("extensions", value.Line, ProblemType)
		}
	})
	return config
}

// choose returns the context to use.
func (c *rawKubeconfig) choose(name string) (*rawContext, error) {
	if name != "" {
		return c.find(name, "contexts", "")
	}
	if c.current != "" {
		return c.find(c.current, "", "current-context")
	}
	if len(c.contexts) != 1 {
		return nil, &ParseError{Object: kubeconfigObject, Field: "current-context", Problem: ProblemNoCurrentContext}
	}
	return &c.contexts[0], nil
}

// find returns the context of a name. The error is about the entry of list, or about field.
func (c *rawKubeconfig) find(name, list, field string) (*rawContext, error) {
	i, problem := c.contextsByName.find(name)
	if problem != "" {
		if list != "" {
			field = fieldPath(list, name, field)
		}
		return nil, &ParseError{Object: kubeconfigObject, Field: field, Problem: problem}
	}
	return &c.contexts[i], nil
}

// index finds the entries of a list by name.
type index map[string]int

// twice stands in an index for a name that several entries have.
const twice = -1

func indexOf(n int, name func(int) string) index {
	x := make(index, n)
	for i := range n {
		if _, ok := x[name(i)]; ok {
			x[name(i)] = twice
		} else {
			x[name(i)] = i
		}
	}
	return x
}

// find returns which entry has a name.
func (x index) find(name string) (int, Problem) {
	i, ok := x[name]
	switch {
	case !ok:
		return 0, ProblemNotFound
	case i == twice:
		return 0, ProblemAmbiguous
	}
	return i, ""
}

// parse makes a connection of one context. Nothing is opened before policy has seen both entries.
func (c *rawKubeconfig) parse(ctx context.Context, x *rawContext) (r Result, err error) {
	r = Result{Name: x.name, Violations: c.violations}
	if x.problem != nil {
		return r, x.problem
	}
	i, err := x.refer("cluster", x.cluster, c.clustersByName)
	if err != nil {
		return r, err
	}
	j, err := x.refer("user", x.user, c.usersByName)
	if err != nil {
		return r, err
	}
	cluster, user := &c.clusters[i], &c.users[j]
	if c.options.Policy.UsedEntriesOnly {
		found := c.options.Policy.checkUser(user, c.options.Policy.checkCluster(cluster, nil))
		if r.Violations, err = c.options.Policy.decide(found); err != nil {
			return r, err
		}
	}
	r.Ignored = append(r.Ignored, c.ignored...)
	r.Ignored = append(r.Ignored, x.ignored...)
	build := builder{ctx: ctx, dir: c.options.Dir, read: c.options.ReadFile, result: &r}
	err = build.spec(cluster, user)
	return r, err
}

// refer returns which entry a field of the context names.
func (x *rawContext) refer(field, name string, in index) (int, error) {
	if name == "" {
		return 0, x.failure(field, ProblemMissing)
	}
	i, problem := in.find(name)
	if problem != "" {
		return 0, x.failure(field, problem)
	}
	return i, nil
}

// resolveCommand makes a relative path of a plugin absolute, as client-go does. Bare names stay as they are.
func resolveCommand(command, dir string) string {
	if dir == "" || command == "" || filepath.IsAbs(command) || filepath.Base(command) == command {
		return command
	}
	return filepath.Join(dir, command)
}
