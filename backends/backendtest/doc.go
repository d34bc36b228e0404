// Package backendtest is the conformance suite of [backends.Backend]: what every backend has to do, whatever its
// inventory, and what the engine behind the Engager relies on.
//
// A backend's own tests call [Run] with a [Harness] that makes an empty inventory and changes it as it is told. The
// package makes no requests to the clusters it lists: their servers do not exist, since a backend never talks to them.
//
// A [Recorder] is an Engager that remembers what it was told and can be waited on, for a backend's further tests.
package backendtest
