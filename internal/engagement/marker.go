package engagement

import "context"

type markerKey struct{}

// mark returns a context that says: this is an engagement, do not wait. Controllers engage a cluster under
// their own lock, and wait there for its caches; a cluster that is slow or dead would stop every other one. Under
// the mark the cluster's cache answers at once, and the engagement itself watches that its informers sync.
func mark(ctx context.Context) context.Context { return context.WithValue(ctx, markerKey{}, true) }

func marked(ctx context.Context) bool { return ctx.Value(markerKey{}) != nil }
