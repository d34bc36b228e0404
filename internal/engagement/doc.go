// Package engagement owns the life of every cluster of a fleet: connect, engage, probe, swap, replace, drain.
//
// It has two halves. [Machine] is the lifecycle of one public name as a pure function: Step takes the time and
// one event and returns actions. It has no goroutine, no clock, no I/O and no randomness of its own, so the whole
// lifecycle can be written down as scripts and simulated. [Engine] is the driver: it holds a machine per name,
// carries out what the machines ask for, and feeds the results back as events.
//
// Two numbers keep late results from doing harm. A generation is one connection, counted per name: a result that
// carries an older generation than the one waited for is discarded. An engagement is one run of a cluster.Cluster;
// it lives through swaps of its generation, and ends when it is replaced or disengaged.
//
// The engine's mutex guards the machines and is never held across I/O, an Engage or a callback: a Step takes
// microseconds, and carrying out an action only starts or cancels something. Get takes no lock at all.
package engagement
