// Package controlplane runs real control planes, a kube-apiserver with its etcd each, for tests, examples and
// benchmarks.
//
//	hub, err := controlplane.Start(ctx, controlplane.Options{Name: "hub", CRDs: []controlplane.CRDs{controlplane.ClusterAPI}})
//	…
//	defer hub.Stop()
//
// The binaries come from KUBEBUILDER_ASSETS where that is set, else from the user's cache folder, where they
// are built once from Go modules alone (the module hack/controlplane says which versions). The first build
// takes some minutes; processes that want the binaries meanwhile wait for it. See [Find].
//
// Starting a control plane takes one to three seconds. The tests of a package share a few of them in a [Pool] and keep
// apart by namespaces and names; [Main] stops them and looks for leaked goroutines.
//
// A control plane never outlives its process, however that ends: a small guard (/bin/sh) waits for the
// process's end, kills the servers, and removes their folder. Nothing that is stopped leaves a goroutine behind.
//
// There are an API server and a store, and nothing else: no controllers, so that a deleted namespace stays
// Terminating, no objects are garbage collected, and no default service account appears.
package controlplane
