package faultproxy

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Verb is what a request asks of an API server, as far as caches are concerned.
type Verb string

const (
	// List is a GET of a collection.
	List Verb = "List"
	// Watch is a watch from a resourceVersion on.
	Watch Verb = "Watch"
	// WatchList is a watch with sendInitialEvents: a list in another form (KEP-3157).
	WatchList Verb = "WatchList"
	// Other is everything else.
	Other Verb = "Other"
)

// Request is what a Counter tells apart.
type Request struct {
	Verb Verb
	// Method and Path are the request's, without the query.
	Method, Path string
	// Status is the answer's status code; 0 if there was no answer.
	Status int
}

// Counter counts requests, as an http.Handler's middleware or around an http.RoundTripper. Requests are counted when their
// headers are answered, so that a watch counts when it begins. The zero value is ready; methods may be called concurrently.
type Counter struct {
	mu     sync.Mutex
	counts map[Request]int
}

// Requests returns how many requests of each sort there were.
func (c *Counter) Requests() map[Request]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Count returns how many requests meet all conditions. Without any, it counts all.
func (c *Counter) Count(conditions ...func(Request) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
next:
	for r, count := range c.counts {
		for _, holds := range conditions {
			if !holds(r) {
				continue next
			}
		}
		n += count
	}
	return n
}

// Relists returns how many lists and watches with initial events were answered with 200.
func (c *Counter) Relists() int {
	return c.Count(func(r Request) bool { return (r.Verb == List || r.Verb == WatchList) && r.Status == http.StatusOK })
}

// WithVerb, WithPath (a suffix of the path) and WithStatus are conditions for Count.
func WithVerb(verb Verb) func(Request) bool { return func(r Request) bool { return r.Verb == verb } }

// WithPath holds for paths that end in suffix.
func WithPath(suffix string) func(Request) bool {
	return func(r Request) bool { return strings.HasSuffix(r.Path, suffix) }
}

// WithStatus holds for answers with the code.
func WithStatus(code int) func(Request) bool { return func(r Request) bool { return r.Status == code } }

// Reset starts again from zero.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = nil
}

func (c *Counter) add(r Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[Request]int{}
	}
	c.counts[r]++
}

// Handler counts what next answers.
func (c *Counter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Made first: handlers in between may change the URL.
		counted := &countingWriter{ResponseWriter: w, counter: c, request: classify(r.Method, r.URL)}
		defer func() { counted.count(0) }()
		next.ServeHTTP(counted, r)
	})
}

// RoundTripper counts what next is answered.
func (c *Counter) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		request := classify(r.Method, r.URL)
		resp, err := next.RoundTrip(r)
		if err == nil {
			request.Status = resp.StatusCode
		}
		c.add(request)
		return resp, err
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// countingWriter counts its request once, when the status is known. Unwrap makes flushing and hijacking go through.
type countingWriter struct {
	http.ResponseWriter
	counter *Counter
	request Request
	counted bool
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *countingWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.count(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.count(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// FlushError sends the headers, and so decides the status.
func (w *countingWriter) FlushError() error {
	w.count(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is for handlers that ask for an http.Flusher.
func (w *countingWriter) Flush() { _ = w.FlushError() }

func (w *countingWriter) count(status int) {
	if !w.counted {
		w.counted = true
		w.request.Status = status
		w.counter.add(w.request)
	}
}

// Classify tells what a request asks.
func Classify(r *http.Request) Verb { return classify(r.Method, r.URL).Verb }

// classify tells lists and watches from the rest by the shape of the path: …/api/v1/… or …/apis/group/version/…, with any
// prefix, then an optional namespaces/name, then the resource and nothing more.
func classify(method string, u *url.URL) Request {
	r := Request{Verb: Other, Method: method, Path: u.Path}
	if method != http.MethodGet || !isCollection(u.Path) {
		return r
	}
	query := u.Query()
	switch watch, _ := strconv.ParseBool(query.Get("watch")); {
	case !watch:
		r.Verb = List
	default:
		r.Verb = Watch
		if initial, _ := strconv.ParseBool(query.Get("sendInitialEvents")); initial {
			r.Verb = WatchList
		}
	}
	return r
}

func isCollection(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for i, s := range segments {
		var rest []string
		switch {
		case s == "api" && len(segments) > i+2:
			rest = segments[i+2:]
		case s == "apis" && len(segments) > i+3:
			rest = segments[i+3:]
		default:
			continue
		}
		return len(rest) == 1 || len(rest) == 3 && rest[0] == "namespaces"
	}
	return false
}
