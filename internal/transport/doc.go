// Package transport is the round tripper under a member's cluster.Cluster whose connection can be swapped
// while informers, clients and probes keep using it.
//
// A [Generation] is one connection made ready: endpoint, CA pool, client certificate, proxy, credential and
// the pooled connections that carry them. A [Transport] sends every request over the generation in force,
// rewriting the URL to its endpoint and adding its credential. The engagement proves a new generation with
// [Generation.RoundTrip] first, and then puts it in force with [Transport.Swap]:
//
//   - requests that begin afterwards go over the new generation;
//   - requests in flight finish on the old one, up to [Options.DrainTimeout];
//   - open watches of the old one end with a clean io.EOF, spread over [Options.Stagger], so that reflectors
//     watch again from the last resourceVersion they saw. That is no LIST, and no backoff;
//   - the connections of the old one are closed when the last of its requests has ended.
//
// Three things about client-go's reflector (v0.36) shape how watches end. It takes a watch that ends in under a
// second and without an event for a broken one and lists anew, so no watch is ended before it has lived longer. It counts
// that second anew from the bookmark that ends a watch-list's initial events, so a watch-list is left
// alone until that bookmark has passed. And a watch that fails to open makes it list anew, so one that was being
// opened when the swap came is opened again on the new generation, and its caller never knows.
//
// Deadlines belong to the kind of a request ([Deadlines]): a cluster's clients have no timeout of their own, and
// one timeout for everything would either cut watches or wait minutes for a dead server.
//
// What this package does not do: it judges no policy (package connection has done so before), proves no identity, and
// decides no swap. Those belong to the engagement.
package transport
