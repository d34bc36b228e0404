package restmapper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxBody bounds one answer, unpacked. 2,000 kinds take about 1 MiB; a member must not exhaust our memory.
	maxBody = 32 << 20
	// maxTotal bounds all answers of one discovery together.
	maxTotal = 2 * maxBody
	// maxValues bounds the values in one answer: a list of three-byte elements takes many times its length once it is decoded. A kind
	// takes about 25.
	maxValues = 2_000_000
	// maxDuration bounds a discovery whose caller set no deadline.
	maxDuration = time.Minute
	// parallel is how many group versions are asked for at once where the server cannot aggregate.
	parallel = 8

	// accept prefers aggregated discovery (KEP-3352): v2 since Kubernetes 1.30, v2beta1 since 1.26.
	accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
		"application/json"
)

// ErrInvalidResponse says that what answered is not a Kubernetes API server, or not one that works.
var ErrInvalidResponse = errors.New("not a discovery document")

// Discover asks a server for its API surface: two requests at once where it supports aggregated discovery, else one more for
// each group version. It ends with ctx, and after a minute at the latest.
//
// client authenticates and bounds its requests as it likes. baseURL is the server's URL; a path is kept.
// previous, if not nil, is what the cluster was known to serve: a document whose entity tag has not changed is then
// not transferred again (previous itself is returned if neither has), and kinds of broken groups are taken over from it.
//
// A group that is broken is no error but reported in [Surface.Broken]. An answer with another status than 200 is a *StatusError
// of k8s.io/apimachinery/pkg/api/errors (IsUnauthorized, IsForbidden …) without the server's text, and one that
// makes no sense is [ErrInvalidResponse].
func (p *Pool) Discover(ctx context.Context, client *http.Client, baseURL string, previous *Surface) (*Surface, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()

	s := server{client: client, baseURL: strings.TrimSuffix(baseURL, "/"), read: new(atomic.Int64)}
	var coreTag, groupsTag string
	if previous != nil {
		coreTag, groupsTag = previous.coreTag, previous.groupsTag
	}
	var core, groups document
	var coreErr, groupsErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		if core, coreErr = s.core(ctx, coreTag); coreErr != nil {
			cancel()
		}
	})
	wg.Go(func() {
		if groups, groupsErr = s.groups(ctx, groupsTag); groupsErr != nil {
			cancel()
		}
	})
	wg.Wait()
	if err := first(coreErr, groupsErr); err != nil {
		return nil, err
	}

	if core.unchanged && groups.unchanged {
		return previous, nil
	}
	if core.unchanged {
		core = previous.document(true)
	}
	if groups.unchanged {
		groups = previous.document(false)
	}
	if len(core.found) == 0 && len(groups.found) == 0 {
		return nil, fmt.Errorf("discover: the server lists no API group: %w", ErrInvalidResponse)
	}
	if !bounded(core.found) || !bounded(groups.found) {
		return nil, fmt.Errorf("discover: more groups, versions or kinds than any server has: %w", ErrInvalidResponse)
	}
	broken := map[schema.GroupVersion]error{}
	maps.Copy(broken, core.broken)
	maps.Copy(broken, groups.broken)
	surface := p.surface(append(core.found, groups.found...), broken, previous)
	surface.coreTag, surface.groupsTag = core.tag, groups.tag
	surface.coreProven, surface.groupsProven = core.proven, groups.proven
	return surface, nil
}

// first returns the error that came first: the other is then mostly just the cancellation that it caused.
func first(a, b error) error {
	if a == nil || (b != nil && errors.Is(a, context.Canceled)) {
		return b
	}
	return a
}

// document is what one of the two roots, /api (the core group) and /apis (all others), lists.
type document struct {
	found     []group
	broken    map[schema.GroupVersion]error
	tag       string
	proven    bool // tag is the hash of the content; see proves
	unchanged bool // since the answer whose tag was sent along; the other fields are empty
}

// document returns that part of s which came from one of the two roots.
func (s *Surface) document(core bool) document {
	d := document{broken: map[schema.GroupVersion]error{}, tag: s.groupsTag, proven: s.groupsProven}
	if core {
		d.tag, d.proven = s.coreTag, s.coreProven
	}
	for _, g := range s.shared.groups {
		if (g.name == "") == core {
			d.found = append(d.found, g)
		}
	}
	for gv, err := range s.Broken {
		if (gv.Group == "") == core {
			d.broken[gv] = err
		}
	}
	return d
}

// server asks one API server.
type server struct {
	client  *http.Client
	baseURL string
	read    *atomic.Int64 // bytes of all bodies of one discovery
}

// answer is a complete answer with status 200, or 304 where a tag was sent.
type answer struct {
	body        []byte
	contentType string
	tag         string
	unchanged   bool
}

func (s server) get(ctx context.Context, path, accept, tag string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.baseURL+path, nil)
	if err != nil {
		return answer{}, fmt.Errorf("discover %s: %w", path, err)
	}
	req.Header.Set("Accept", accept)
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("discover %s: %w", path, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	switch {
	case resp.StatusCode == http.StatusNotModified && tag != "":
		return answer{tag: tag, unchanged: true}, nil
	case resp.StatusCode != http.StatusOK:
		return answer{}, fmt.Errorf("discover %s: %w", path, statusError(resp))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return answer{}, fmt.Errorf("discover %s: %w", path, err)
	}
	if len(body) > maxBody {
		return answer{}, fmt.Errorf("discover %s: more than %d bytes: %w", path, maxBody, ErrInvalidResponse)
	}
	if s.read.Add(int64(len(body))) > maxTotal {
		return answer{}, fmt.Errorf("discover: more than %d bytes altogether: %w", maxTotal, ErrInvalidResponse)
	}
	if bytes.Count(body, []byte{','}) > maxValues {
		return answer{}, fmt.Errorf("discover %s: more than %d values: %w", path, maxValues, ErrInvalidResponse)
	}
	return answer{body: body, contentType: resp.Header.Get("Content-Type"), tag: resp.Header.Get("ETag")}, nil
}

// statusError makes an error of a status code alone: whatever text a member sends stays out of logs and status.
func statusError(resp *http.Response) error {
	text := strings.ToLower(http.StatusText(resp.StatusCode))
	retryAfter, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // seconds; 0 where there is none, or a date
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)                 // so that the connection can be used again
	return apierrors.NewGenericServerResponse(resp.StatusCode, http.MethodGet, schema.GroupResource{}, "", text, max(retryAfter, 0), false)
}
