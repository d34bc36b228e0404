package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

const (
	// DefaultFileMember is how members of files are named: the file, then the context.
	DefaultFileMember = "{{file}}/{{context}}"
	// DefaultHoldFor is how long the last good connection is held when a kubeconfig becomes unreadable.
	DefaultHoldFor = 5 * time.Minute

	defaultPoll      = 10 * time.Second
	defaultPollAlone = time.Second

	// quiet is for how long nothing must happen before changed files are read, and busy the longest wait for that.
	quiet, busy = 50 * time.Millisecond, 500 * time.Millisecond
	// settle is for how long a good member has to be broken or gone to be believed: a file that is written in place
	// is empty for a moment, and editors move a file away before they write it anew.
	settle = 300 * time.Millisecond
)

// FilesOptions say which files are kubeconfigs, and which of their contexts are clusters. The zero value is what
// kubectl would read, with every context as a cluster.
type FilesOptions struct {
	// Paths are files, folders and patterns of [filepath.Match]. Each may be a list of them, as in KUBECONFIG.
	// A leading ~ is the home of the user. Relative paths are resolved once, by NewFiles.
	//
	// Of a folder, every regular file counts, but not those in folders below it, nor what editors leave behind:
	// hidden files, and those whose names end in ~, .swp, .tmp, .bak or .orig. The same is true of what a pattern finds.
	// A file that another one refers to, such as a CA, counts for nothing of its own. Symbolic links are followed.
	//
	// Default: the environment variable KUBECONFIG, else ~/.kube/config.
	Paths []string
	// Contexts names the contexts that are clusters. Default: all.
	Contexts []string
	// CurrentContext takes only the current context of each file, or its only one, for a cluster. It excludes Contexts.
	CurrentContext bool
	// Member is how a member is named, where
	//
	//   - {{file}} is the name of the file; for one that a pattern has found, its path below the folder in which the
	//     pattern begins, so it stays the same when that folder moves;
	//   - {{folder}} is the name of the file's folder;
	//   - {{context}} is the name of the context.
	//
	// Default: DefaultFileMember, or "{{file}}" with CurrentContext. Of two that come out the same, the one whose path
	// is listed first has the name, and the other is rejected under its full path.
	Member string
	// Policy is what kubeconfigs have to conform to. Default: [connection.LocalFiles].
	Policy *connection.Policy

	// HoldFor is how long the last good connection is held when a file or a context becomes unusable.
	// A folder that is missing or cannot be read says nothing about its clusters: they stay as they are. Default: DefaultHoldFor. Negative: not at all. What policy refuses is never held, nor is a context that
	// is gone from a readable file, nor a file that is gone from a readable folder.
	HoldFor time.Duration
	// PollInterval is how often all files are read, besides whenever the file system says that they have changed.
	// Default: 10s, or 1s while the file system cannot say so, because inotify is exhausted.
	PollInterval time.Duration
	// Logger is told once when files can only be polled. Default: none.
	Logger logr.Logger
}

// Files is the inventory of kubeconfigs in files. It needs no hub.
type Files struct {
	opts   FilesOptions
	policy connection.Policy
	places []place
	notify func() (*fsnotify.Watcher, error)
}

var _ backends.Backend = (*Files)(nil)

// NewFiles returns a backend, or an error if the options are unusable. It opens no file: those that do not exist
// (yet) are waited for.
func NewFiles(opts FilesOptions) (*Files, error) {
	f := &Files{opts: opts, policy: connection.LocalFiles(), notify: fsnotify.NewWatcher}
	if opts.Policy != nil {
		f.policy = *opts.Policy
	}
	if opts.CurrentContext && len(opts.Contexts) > 0 {
		return nil, errors.New("kubeconfig files: options Contexts and CurrentContext exclude each other")
	}
	if opts.CurrentContext {
		f.opts.Member = cmp.Or(opts.Member, "{{file}}")
	}
	f.opts.Member = cmp.Or(f.opts.Member, DefaultFileMember)
	if err := checkMember(f.opts.Member, "{{file}}", "{{folder}}", "{{context}}"); err != nil {
		return nil, fmt.Errorf("kubeconfig files: option Member: %w", err)
	}
	f.opts.HoldFor = cmp.Or(opts.HoldFor, DefaultHoldFor)
	if opts.PollInterval < 0 {
		return nil, errors.New("kubeconfig files: option PollInterval is negative")
	}
	paths := opts.Paths
	if len(paths) == 0 {
		paths = []string{cmp.Or(os.Getenv("KUBECONFIG"), filepath.Join("~", ".kube", "config"))}
	}
	for _, list := range paths {
		for _, path := range filepath.SplitList(list) {
			place, err := newPlace(path)
			if err != nil {
				return nil, fmt.Errorf("kubeconfig files: option Paths: %w", err)
			}
			f.places = append(f.places, place)
		}
	}
	return f, nil
}

// checkMember refuses templates that use anything but the variables, or none of them.
func checkMember(template string, variables ...string) error {
	if !slices.ContainsFunc(variables, func(v string) bool { return strings.Contains(template, v) }) {
		return fmt.Errorf("template %q uses none of %s", template, strings.Join(variables, ", "))
	}
	rest := template
	for _, v := range variables {
		rest = strings.ReplaceAll(rest, v, "")
	}
	if strings.Contains(rest, "{{") || strings.Contains(rest, "}}") {
		return fmt.Errorf("template %q uses something else than %s", template, strings.Join(variables, ", "))
	}
	return nil
}

// Run implements backends.Backend. It returns nil when ctx ends, and never otherwise.
func (f *Files) Run(ctx context.Context, engager backends.Engager) error {
	folders := &folderWatch{open: f.notify, logger: f.opts.Logger}
	defer folders.close()
	read := reading{files: f, folders: map[string]bool{}}
	decide := fileMembers{members: members{
		engager: engager, holdFor: f.opts.HoldFor, settle: settle, known: map[string]*member{}}}
	for ctx.Err() == nil {
		seen := read.all(ctx)
		if ctx.Err() != nil {
			return nil // what was read last may be incomplete
		}
		if folders.watch(seen.points) {
			continue // what changed before it was watched would be missed
		}
		again := decide.next(time.Now(), seen)
		poll := cmp.Or(f.opts.PollInterval, defaultPoll)
		if folders.polling {
			poll = cmp.Or(f.opts.PollInterval, defaultPollAlone)
		}
		if next := time.Now().Add(poll); again.IsZero() || next.Before(again) {
			again = next
		}
		folders.wait(ctx, again)
	}
	return nil
}
