package engagement

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"

	"k8s.io/client-go/rest"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/connection"
)

// adopt proves a cluster that somebody else runs, and makes it ready to be engaged, unless it is only to be proved.
// Who it is, is not asked: several of them may be parts of one cluster.
func (e *Engine) adopt(ctx context.Context, m *member, a Connect, place *place) (*proved, error) {
	probes, err := probesOf(a.Link.Running)
	if err != nil {
		return nil, err
	}
	p := &proved{link: a.Link, number: a.Generation}
	c := prober{client: &http.Client{Transport: probes}}
	if err := place.await(ctx, c.alive); err != nil {
		return nil, err
	}
	p.link.Facts.Version = c.version(ctx)
	if p.link.Facts.User, p.link.Facts.Rights, err = c.user(ctx); err != nil {
		return nil, err
	}
	if !a.SwapOnly {
		p.built = e.wrap(m.name, a.Link.Running, probes)
	}
	return p, nil
}

// wrap makes an engagement of a cluster that somebody else runs. For controllers it is that cluster, with a cache
// that does not wait under the mark.
func (e *Engine) wrap(name string, foreign cluster.Cluster, probes http.RoundTripper) *built {
	b := &built{name: name, probes: probes, indexed: map[indexKey]*onceIndexed{}, health: &watchHealth{missing: func() {}}}
	b.cache = &memberCache{
		Cache: foreign.GetCache(), mapper: &cacheMapper{RESTMapper: foreign.GetRESTMapper()}, readTimeout: e.opts.ReadTimeout,
		scheme: foreign.GetScheme(), asked: make(chan struct{}, 1), forget: b.health.forget,
	}
	b.cluster = &adopted{foreign, b.cache}
	return b
}

// adopted is a cluster that somebody else runs.
type adopted struct {
	cluster.Cluster
	cache *memberCache
}

// GetCache implements cluster.Cluster.
func (a *adopted) GetCache() crcache.Cache { return a.cache }

// GetFieldIndexer implements cluster.Cluster.
func (a *adopted) GetFieldIndexer() client.FieldIndexer { return a.cache }

// Start waits for the engagement's end: whoever runs the cluster has started it.
func (a *adopted) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// probesOf returns what a cluster is asked through that somebody else runs: its own HTTP client.
func probesOf(foreign cluster.Cluster) (http.RoundTripper, error) {
	config := foreign.GetConfig()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("adopt cluster: its address: %w", err)
	}
	httpClient := foreign.GetHTTPClient()
	if httpClient == nil || httpClient.Transport == nil {
		return nil, fmt.Errorf("adopt cluster: it has no HTTP client")
	}
	return &rebased{base, httpClient.Transport}, nil
}

// rebased sends requests to another address.
type rebased struct {
	base *url.URL
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r *rebased) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, req.Host = r.base.Scheme, r.base.Host, ""
	req.URL.Path = path.Join("/", r.base.Path, req.URL.Path)
	return r.next.RoundTrip(req)
}

// auth returns the credentials of the link, to be kept out of texts.
func (l Link) auth() connection.Auth {
	if l.Running == nil {
		return l.Connection.Auth
	}
	config := l.Running.GetConfig()
	return connection.Auth{Token: connection.NewSecret(config.BearerToken), Password: connection.NewSecret(config.Password)}
}
