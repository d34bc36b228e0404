package fakeapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// Cluster plays one API server. Its methods may be called concurrently, and while clients are connected.
type Cluster struct {
	// Counter counts the requests, with paths as the cluster sees them ("/api/v1/configmaps").
	Counter faultproxy.Counter

	server  *Server
	name    string
	handler http.Handler
	store   *store

	mu      sync.Mutex // guards what follows
	tokens  map[string]string
	faults  map[faultKey]*Fault
	surface *surface
	legacy  bool
}

func newCluster(server *Server, name string, surface *surface) *Cluster {
	c := &Cluster{server: server, name: name, store: newStore(), faults: map[faultKey]*Fault{}, surface: surface}
	c.handler = c.Counter.Handler(http.HandlerFunc(c.serve))
	c.SetUID("uid-of-" + name)
	return c
}

// URL is the cluster's URL; it has a path.
func (c *Cluster) URL() string { return c.server.http.URL + clustersPath + c.name }

// Config returns a client configuration with that token, which may be empty.
func (c *Cluster) Config(token string) *rest.Config {
	return &rest.Config{
		Host:            c.URL(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.server.CAData()},
		QPS:             -1,
	}
}

// AllowToken lets the token in, as that user. Until it is called for the first time, everybody is let in as "anybody".
func (c *Cluster) AllowToken(token, user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil {
		c.tokens = map[string]string{}
	}
	c.tokens[token] = user
}

// RevokeToken refuses the token from the next request on; open watches go on, as with a real server.
func (c *Cluster) RevokeToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tokens, token)
}

// user tells whom a request is from. Not ok: nobody that is let in.
func (c *Cluster) user(r *http.Request) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil {
		return "anybody", true
	}
	user, ok := c.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	return user, ok
}

// Fault is what happens to a request instead of, or before, its answer.
type Fault struct {
	// Verb narrows the fault to requests of that sort; empty: all.
	Verb faultproxy.Verb
	// Delay is waited for first. Without a further fault, the usual answer follows.
	Delay time.Duration
	// Hang never answers.
	Hang bool
	// Garbage answers 200 with something that no API server says.
	Garbage bool
	// Status answers with that code and a Status object.
	Status int
	// RetryAfter is sent along with Status; whole seconds.
	RetryAfter time.Duration
	// Times is how many requests are affected; 0: all, until the fault is cleared.
	Times int
}

type faultKey struct {
	path string
	verb faultproxy.Verb
}

// SetFault makes requests fail whose path is the given one or below it; "" is every path. There is one fault for each path and
// Verb; of several that apply, the longest path wins, then the one with a Verb. Open watches are not affected: see EndWatches.
//
// A fault with status 403 also makes a SelfSubjectAccessReview for that path say no.
func (c *Cluster) SetFault(path string, fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[faultKey{path, fault.Verb}] = &fault
}

// ClearFaults removes all faults. Requests that hang go on hanging until their clients give up.
func (c *Cluster) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.faults)
}

// fault returns what applies to the request, and counts it if use is set.
func (c *Cluster) fault(path string, verb faultproxy.Verb, use bool) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(c.faults)), func(k faultKey) bool {
		below := k.path == "" || path == k.path || strings.HasPrefix(path, strings.TrimSuffix(k.path, "/")+"/")
		return !below || (k.verb != "" && k.verb != verb)
	})
	if len(keys) == 0 {
		return Fault{}
	}
	key := slices.MaxFunc(keys, func(a, b faultKey) int {
		return cmp.Or(cmp.Compare(len(a.path), len(b.path)), cmp.Compare(len(a.verb), len(b.verb)))
	})
	fault := *c.faults[key]
	if use && fault.Times > 0 {
		if c.faults[key].Times--; c.faults[key].Times == 0 {
			delete(c.faults, key)
		}
	}
	return fault
}
