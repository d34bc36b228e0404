// Package faultproxy puts trouble between a client and a server: for tests, benchmarks and examples.
//
// A [Proxy] forwards TCP connections and knows nothing of what is in them. At any time it can be told to refuse
// connections, to swallow everything, to forget the connections it has, to reset them, to take its time, or to lead elsewhere. See [Mode].
//
// A [TLSProxy] ends TLS with a certificate of its own, which can be exchanged, and forwards requests to an API server over another TLS
// connection. A [Counter] counts them: how many lists and watches there were tells whether a cache was thrown away.
//
// Both are cheap enough to have a thousand of them in one process. Neither leaves a goroutine behind after Close.
// To have the faults of both, point a Proxy at a TLSProxy.
package faultproxy
