package fakeapi

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Server carries any number of clusters, each under a path of its own. Its methods may be called concurrently.
type Server struct {
	http   *httptest.Server
	cancel context.CancelFunc

	mu        sync.Mutex // guards what follows
	closed    bool
	clusters  map[string]*Cluster
	synthetic map[int]*surface // by number of kinds, shared by clusters
	requests  sync.WaitGroup   // added to under mu while not closed
}

// NewServer starts a server on a free port of the loopback interface.
func NewServer() *Server {
	s := &Server{clusters: map[string]*Cluster{}, synthetic: map[int]*surface{}}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that hang up are what this is for
	s.http.StartTLS()
	return s
}

// Addr is where the server listens, "127.0.0.1:port".
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// CAData is the PEM certificate that the server is recognised by, under 127.0.0.1 and example.com.
func (s *Server) CAData() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
}

// Cluster returns the cluster with that name, which must not contain a slash. It is made if it does not exist.
func (s *Server) Cluster(name string) *Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.clusters[name]; ok {
		return c
	}
	c := newCluster(s, name, s.surfaceLocked(0))
	s.clusters[name] = c
	return c
}

// CloseConnections closes the connections of all clients.
func (s *Server) CloseConnections() { s.http.CloseClientConnections() }

// Close ends all requests and the server, and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.http.CloseClientConnections()
	s.http.Close()
	s.requests.Wait()
}

// ServeHTTP leads to the clusters.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, clustersPath), "/")
	s.mu.Lock()
	cluster := s.clusters[name]
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.requests.Add(1)
	s.mu.Unlock()
	defer s.requests.Done()
	if cluster == nil || !strings.HasPrefix(r.URL.Path, clustersPath) {
		http.NotFound(w, r)
		return
	}
	url := *r.URL
	url.Path = "/" + path
	stripped := *r
	stripped.URL = &url
	cluster.handler.ServeHTTP(w, &stripped)
}

const clustersPath = "/clusters/"

// surfaceLocked returns the shared surface with n synthetic kinds.
func (s *Server) surfaceLocked(n int) *surface {
	if s.synthetic[n] == nil {
		s.synthetic[n] = &surface{kinds: append(builtin(), syntheticKinds(n)...)}
	}
	return s.synthetic[n]
}
