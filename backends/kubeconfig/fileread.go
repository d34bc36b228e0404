package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// seen is what one reading of all files has found.
type seen struct {
	points  points
	unknown []unreadablePlace
	files   []*readFile // in the order of Paths
}

// readFile is a kubeconfig file and what is in it.
type readFile struct {
	foundFile
	digest   connection.Fingerprint
	contexts []contextOf
	err      error // why it cannot be read as a whole
	refers   []string
}

// contextOf is a context that is a cluster.
type contextOf struct {
	connection.ContextResult
	member, fallback string // its name, and another if the first is taken
}

// reading reads files, and parses those that have changed since. It is for one goroutine.
type reading struct {
	files   *Files
	folders map[string]bool // places that were folders once
	last    map[string]*readFile
}

// content is what was read at a path.
type content struct {
	data []byte
	err  error
}

// contents are the files that were read at one time, each once.
type contents map[string]content

func (c contents) read(ctx context.Context, path string) ([]byte, error) {
	read, ok := c[path]
	if !ok {
		read.data, read.err = connection.ReadFile(ctx, path)
		c[path] = read
	}
	return read.data, read.err
}

// digest covers what was read at all the paths.
func (c contents) digest(ctx context.Context, paths ...string) connection.Fingerprint {
	parts := make(map[string][]byte, len(paths))
	for _, path := range paths {
		if data, err := c.read(ctx, path); err != nil {
			parts["error "+path] = []byte(err.Error())
		} else {
			parts["data "+path] = data
		}
	}
	return connection.DigestOf(parts)
}

// all reads everything.
func (r *reading) all(ctx context.Context) seen {
	search := search{points: points{}}
	for _, place := range r.files.places {
		r.folders[place.path] = search.look(place, r.folders[place.path])
	}
	contents := contents{}
	now := map[string]*readFile{}
	s := seen{points: search.points, unknown: search.unknown}
	referred := map[string]bool{}
	for _, found := range search.found {
		if ctx.Err() != nil {
			return s
		}
		if now[found.path] != nil {
			continue // two places hold it
		}
		s.points.lead(found.path)
		file := r.file(ctx, contents, found)
		now[found.path] = file
		for _, path := range file.refers {
			s.points.lead(path)
			referred[path] = true
		}
		s.files = append(s.files, file)
	}
	s.files = slices.DeleteFunc(s.files, func(f *readFile) bool { return f.listed && f.err != nil && referred[f.path] })
	r.last = now
	return s
}

// file returns what is in a file: what it was, if neither it nor what it refers to has changed.
func (r *reading) file(ctx context.Context, contents contents, found foundFile) *readFile {
	if last := r.last[found.path]; last != nil && last.foundFile == found &&
		last.digest == contents.digest(ctx, append(last.refers, found.path)...) {
		return last
	}
	f := &readFile{foundFile: found}
	var data []byte
	if data, f.err = contents.read(ctx, found.path); f.err != nil {
		var pathError *fs.PathError
		if errors.As(f.err, &pathError) {
			f.err = fmt.Errorf("%s: %w", pathError.Op, pathError.Err) // without the path, which is said with it
		}
	} else {
		f.err = r.parse(ctx, contents, data, f)
	}
	f.digest = contents.digest(ctx, append(f.refers, found.path)...)
	return f
}

func (r *reading) parse(ctx context.Context, contents contents, data []byte, f *readFile) error {
	opts := connection.KubeconfigOptions{
		Policy: r.files.policy, Dir: filepath.Dir(f.path), ReadFile: contents.read,
	}
	var results []connection.ContextResult
	var err error
	if r.files.opts.CurrentContext {
		var result connection.Result
		result, err = connection.ParseKubeconfig(ctx, data, opts)
		if err == nil {
			results = []connection.ContextResult{{Result: result}}
		} else {
			f.refers = result.Files
		}
	} else {
		results, err = connection.ParseContexts(ctx, data, opts)
	}
	for _, result := range results {
		f.refers = append(f.refers, result.Files...)
		if chosen := r.files.opts.Contexts; len(chosen) == 0 || slices.Contains(chosen, result.Name) {
			f.contexts = append(f.contexts, contextOf{
				ContextResult: result,
				member:        r.files.member(f.foundFile, result.Name),
				fallback:      f.path + "/" + result.Name,
			})
		}
	}
	slices.Sort(f.refers)
	f.refers = slices.Clip(slices.Compact(f.refers))
	return err
}

// member returns the name of a context's member.
func (f *Files) member(file foundFile, context string) string {
	return strings.NewReplacer(
		"{{file}}", file.name, "{{folder}}", filepath.Base(filepath.Dir(file.path)), "{{context}}", context,
	).Replace(f.opts.Member)
}

// source is the reference to a file.
func (f foundFile) source() backends.ObjectReference { return backends.ObjectReference{File: f.path} }
