// Package fakeapi plays the API servers of many clusters in one process, on one listener: for tests and benchmarks that need
// a thousand members, or a member that misbehaves at a chosen moment.
//
//	server := fakeapi.NewServer()
//	defer server.Close()
//	member := server.Cluster("member-1")
//	member.AllowToken("secret", "fleet-controller")
//	member.SetFault("/api/v1/configmaps", fakeapi.Fault{Status: http.StatusForbidden})
//
// A [Cluster] serves health and version, aggregated and legacy discovery with as many kinds as wanted, reviews of oneself,
// and objects in memory with get, list, watch (bookmarks, initial events), create, update and delete. client-go's
// reflectors and controller-runtime's caches work with it.
//
// It is no API server: it validates nothing, knows neither admission, patches, pagination, status nor finalizers, and
// authorizes everything but what a [Fault] forbids. Where such behaviour matters, use package controlplane.
package fakeapi
