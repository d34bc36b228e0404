// Package restmapper maps kinds to resources for many clusters at the price of few.
//
// A REST mapper is most of what an idle cluster costs: about 3 KiB for every kind that its server serves.
// Clusters of a fleet mostly serve the same kinds, so a [Pool] keeps one immutable mapper for each distinct
// API surface, found by a hash of its content, and hands it to every cluster that serves it. A surface that
// nobody serves any more is freed by the garbage collector.
//
// A [Mapper] is one cluster's view. It answers from memory in every call, because controller-runtime calls it
// under locks that all informers of a cluster share. What it does not know it reports as a no-match error at once,
// and asks its cluster again in the background: one question at a time, at a limited rate.
//
// What it does not do: it does not poll. Whoever waits for a kind to be installed calls [Mapper.Refresh]
// while waiting.
package restmapper
