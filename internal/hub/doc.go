// Package hub watches inventory objects on a hub, for every backend that has one.
//
// A [Source] keeps the objects of one kind, as views that hold only what its backend needs: chosen by
// selectors that the server applies, in all namespaces or in a list of them, at the most preferred version
// that the hub serves. A [Loop] runs the sources of a backend and calls its Reconcile with the key of every
// member that may have changed. Everything that a backend says to its Engager comes from the one goroutine
// of its Loop, so it needs no locks, and its decisions about a member are in order.
//
// The hub's trouble never looks like a change of its objects. While a namespace is forbidden, the hub is down,
// or a CRD is missing, the objects known so far stay as they are, the trouble is told as
// [backends.Health], and the other namespaces and sources carry on. What the hub says is deleted is
// deleted, though: when a CRD is removed, the API server deletes its objects first and says so, one by one,
// which cannot be told from deletions that somebody wanted. Holding clusters that vanish in a mass is for whoever
// sees all of them.
package hub
