package transport

import (
	"net/http"
	"net/url"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		method, url string
		want        kind
	}{
		{"GET", "/", kindDiscovery},
		{"GET", "/api", kindDiscovery},
		{"GET", "/apis/", kindDiscovery},
		{"GET", "/apis/apps", kindDiscovery},
		{"GET", "/apis/apps/v1", kindDiscovery},
		{"GET", "/api/v1/", kindDiscovery},
		{"GET", "/version", kindDiscovery},
		{"GET", "/readyz?verbose", kindDiscovery},
		{"GET", "/livez/ping", kindDiscovery},
		{"GET", "/openapi/v3/apis/apps/v1", kindList},
		{"GET", "/api/v1/pods", kindList},
		{"GET", "/api/v1/pods?limit=500&watch=false", kindList},
		{"GET", "/api/v1/pods?watch=0", kindList},
		{"GET", "/api/v1/namespaces", kindList},
		{"GET", "/api/v1/namespaces/a", kindRead},
		{"GET", "/api/v1/namespaces/a/", kindRead},
		{"GET", "/api/v1/namespaces/a/pods", kindList},
		{"GET", "/api/v1/namespaces/a/pods/p", kindRead},
		{"GET", "/api/v1/namespaces/a/pods/p/status", kindRead},
		{"GET", "/apis/apps/v1/deployments", kindList},
		{"GET", "/apis/apps/v1/namespaces/a/deployments/d/scale", kindRead},
		{"GET", "/apis/g/v1/clusterthings/c", kindRead},
		{"GET", "/api/v1/pods?watch=true", kindWatch},
		{"GET", "/api/v1/pods?resourceVersion=1&watch=1&timeoutSeconds=400", kindWatch},
		{"GET", "/api/v1/pods?watch", kindWatch},
		{"GET", "/api/v1/pods?watch=", kindWatch},
		{"GET", "/api/v1/pods?w%61tch=true", kindWatch},
		{"GET", "/api/v1/pods?watch=true&watch=false", kindWatch},
		{"GET", "/api/v1/pods?watch=FALSE", kindList},
		{"GET", "/api/v1/namespaces/a/pods/p?watch=true", kindWatch},
		{"GET", "/api/v1/watch/pods", kindWatch},
		{"GET", "/apis/apps/v1/watch/namespaces/a/deployments/d", kindWatch},
		{"POST", "/api/v1/namespaces/a/pods?watch=true", kindWrite},
		{"GET", "/api/v1/namespaces/a/pods/p/log", kindRead},
		{"GET", "/api/v1/namespaces/a/pods/p/log?follow=false", kindRead},
		{"GET", "/api/v1/namespaces/a/pods/p/log?container=c&follow=true", kindSession},
		{"GET", "/api/v1/namespaces/a/services/s:80/proxy/stream?watch=true", kindSession},
		{"GET", "/api/v1/nodes/n/proxy/metrics", kindSession},
		{"POST", "/api/v1/namespaces/a/pods", kindWrite},
		{"PUT", "/api/v1/namespaces/a/pods/p", kindWrite},
		{"PATCH", "/api/v1/namespaces/a/pods/p/status", kindWrite},
		{"DELETE", "/api/v1/namespaces/a/pods/p", kindWrite},
		{"DELETE", "/api/v1/namespaces/a/pods", kindList},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", kindWrite},
		{"GET", "/metrics", kindRead},
		{"POST", "/custom", kindWrite},
	} {
		u, err := url.Parse("https://a.member.invalid" + tc.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := classify(&http.Request{Method: tc.method, URL: u}); got != tc.want {
			t.Errorf("%s %s: got %v, want %v", tc.method, tc.url, got, tc.want)
		}
	}
	for _, c := range []string{"Upgrade", "upgrade", "keep-alive, Upgrade"} {
		r := &http.Request{Method: "POST", URL: &url.URL{Path: "/api/v1/namespaces/a/pods/p/exec"}, Header: http.Header{"Connection": {c}}}
		if got := classify(r); got != kindUpgrade {
			t.Errorf("Connection: %s: got %v", c, got)
		}
	}
}

func TestClassifyAllocatesNothing(t *testing.T) {
	u, err := url.Parse("https://a/apis/apps/v1/namespaces/a/deployments?resourceVersion=1234&timeoutSeconds=400&watch=true")
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{Method: "GET", URL: u, Header: http.Header{"Accept": {"application/json"}}}
	if n := testing.AllocsPerRun(100, func() { classify(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
