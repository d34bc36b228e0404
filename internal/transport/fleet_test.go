package transport

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// fleet is a fake API server that accepts every token and remembers what came with which.
type fleet struct {
	*server
	mu      sync.Mutex
	open    map[string]int           // open watches by token
	seen    map[string]int           // all requests by token; nil: not remembered
	holding map[string]chan struct{} // requests with hold=<name> wait until this is closed
	arrived chan string              // names of requests that are held
}

func newFleet(t testing.TB) *fleet {
	f := &fleet{open: map[string]int{}, seen: map[string]int{}, holding: map[string]chan struct{}{}, arrived: make(chan string, 100)}
	f.server = newServer(t, f)
	return f
}

func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	q := r.URL.Query()
	f.mu.Lock()
	if f.seen != nil {
		f.seen[token]++
	}
	hold := f.holding[q.Get("hold")]
	f.mu.Unlock()
	if hold != nil {
		f.arrived <- q.Get("hold")
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s%s\n", r.Method, token, body)
	if q.Get("watch") == "" && q.Get("follow") == "" {
		return
	}
	_ = http.NewResponseController(w).Flush()
	f.count(token, 1)
	defer f.count(token, -1)
	if q.Get("sendInitialEvents") != "" {
		f.mu.Lock()
		hold := f.holding["bookmark"]
		f.mu.Unlock()
		select {
		case <-hold:
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
	<-r.Context().Done()
}

func (f *fleet) count(token string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[token] += n; f.open[token] == 0 {
		delete(f.open, token)
	}
}

func (f *fleet) watching(token string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[token]
}

// watches counts the open watches of all tokens.
func (f *fleet) watches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, open := range f.open {
		n += open
	}
	return n
}

func (f *fleet) requests(token string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[token]
}

// hold makes requests with hold=name wait until the returned func is called.
func (f *fleet) hold(t testing.TB, name string) (release func()) {
	c := make(chan struct{})
	f.mu.Lock()
	f.holding[name] = c
	f.mu.Unlock()
	release = sync.OnceFunc(func() { close(c) })
	t.Cleanup(release)
	return release
}

// watch opens a watch, reads its first line, and returns the rest of it.
func watch(t testing.TB, rt http.RoundTripper, path, first string) *bufio.Reader {
	t.Helper()
	resp, err := rt.RoundTrip(get(t, path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	r := bufio.NewReader(resp.Body)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if line != first+"\n" {
		t.Fatalf("the watch began with %q, want %q", line, first)
	}
	return r
}

// ending reads a body to its end in the background and sends how it ended.
func ending(r io.Reader) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, r)
		done <- err // nil: io.EOF
	}()
	return done
}

func within(t testing.TB, d time.Duration, what string, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(d):
		t.Fatalf("waited %v for %s", d, what)
		return nil
	}
}

const watchPath = "/api/v1/pods?watch=true"
