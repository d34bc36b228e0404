// Package execplugin runs client-go credential plugins (KEP-541, client.authentication.k8s.io/v1 and v1beta1) so that
// a plugin which hangs, talks without end, or leaves children behind harms nobody but its own cluster.
//
// A [Runner] runs plugins, a bounded number at once ([Options.MaxConcurrent] says how they share it), each under a deadline, without
// stdin, with a minimal environment, and with bounded output. What a plugin writes to stderr is never kept, passed on or logged.
//
// On Unix a plugin has a process group of its own, and the whole group is killed when the plugin's time is over and, on Linux, when it has
// ended. Children that leave the group (setsid, setpgid) escape that, as daemons mean to; what they cannot do is to keep a run
// from ending. Elsewhere the plugin alone is killed.
//
// A [Source] is one plugin's credential: cached in memory, refreshed before it expires and after a 401, by one run at a
// time, with backoff while the plugin fails.
//
// Whether a command may be run at all has been decided before, by connection.Policy. This package runs what it is given.
package execplugin
