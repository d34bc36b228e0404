package kubeconfig_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/connection"
)

// contexts returns a kubeconfig with a context for each name; it leads to https://<name>.example.com with the token
// "<name>-<generation>". The first is the current one. All entries of one context have the context's name.
func contexts(generation string, names ...string) []byte {
	var clusters, users, all strings.Builder
	for _, name := range names {
		host := strings.NewReplacer("/", "-", "@", "-", " ", "-").Replace(name)
		fmt.Fprintf(&clusters, "- {name: %q, cluster: {server: \"https://%s.example.com\"}}\n", name, host)
		fmt.Fprintf(&users, "- {name: %q, user: {token: \"%s-%s\"}}\n", name, host, generation)
		fmt.Fprintf(&all, "- {name: %q, context: {cluster: %q, user: %q}}\n", name, name, name)
	}
	return fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: %q\nclusters:\n%susers:\n%scontexts:\n%s",
		names[0], &clusters, &users, &all)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace writes a file beside path and renames it to path.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	write(t, path+".tmp", data)
	do(t, os.Rename(path+".tmp", path))
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hourly keeps polls from hiding that a change went unnoticed.
const hourly = time.Hour

func newFiles(t *testing.T, opts kubeconfig.FilesOptions) *kubeconfig.Files {
	t.Helper()
	f, err := kubeconfig.NewFiles(opts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func startFiles(t *testing.T, opts kubeconfig.FilesOptions) *backendtest.Running {
	t.Helper()
	if opts.PollInterval == 0 {
		opts.PollInterval = hourly
	}
	r := backendtest.Start(t, newFiles(t, opts))
	r.WaitSynced(t)
	return r
}

// waitToken waits until a member is engaged with a token.
func waitToken(t *testing.T, r *backendtest.Running, member, token string) {
	t.Helper()
	r.Wait(t, member+" is engaged with "+token, func(f backendtest.Fleet) bool {
		c := f.Members[member].Engaged
		return c != nil && c.Connection.Auth.Token.Reveal() == token
	})
}

// waitFleet waits until exactly these members are engaged, and none is held.
func waitFleet(t *testing.T, r *backendtest.Running, members ...string) {
	t.Helper()
	slices.Sort(members)
	r.Wait(t, fmt.Sprintf("exactly %q are engaged", members), func(f backendtest.Fleet) bool {
		maps.DeleteFunc(f.Members, func(_ string, m backendtest.Member) bool { return m.Disengaged != "" })
		return slices.Equal(slices.Sorted(maps.Keys(f.Members)), members) &&
			!slices.ContainsFunc(members, func(name string) bool { return f.Members[name].Engaged == nil })
	})
}

func TestFilesConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{
		New: func(t *testing.T) backendtest.Inventory {
			folder := t.TempDir()
			path := func(name string) string { return filepath.Join(folder, name) }
			return backendtest.Inventory{
				Backend: newFiles(t, kubeconfig.FilesOptions{Paths: []string{folder}, PollInterval: hourly, CurrentContext: true}),
				Member:  func(name string) string { return name },
				Put:     func(t *testing.T, name string, a backendtest.Access) { replace(t, path(name), a.Kubeconfig()) },
				Break:   func(t *testing.T, name string) { write(t, path(name), backendtest.BrokenKubeconfig()) },
				Delete:  func(t *testing.T, name string) { do(t, os.Remove(path(name))) },
			}
		},
	})
}

// Every way to name files leads to members with names that the folder has no part in.
func TestFilesAreFound(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "fleet", "a.yaml"), contexts("1", "one", "two"))
	write(t, filepath.Join(folder, "fleet", "b.yaml"), contexts("1", "one"))
	write(t, filepath.Join(folder, "fleet", "below", "c.yaml"), contexts("1", "three"))
	for _, dropping := range []string{".hidden", "a.yaml~", ".a.yaml.swp", "b.yaml.bak", "x.tmp", "#a.yaml#", "4913"} {
		write(t, filepath.Join(folder, "fleet", dropping), contexts("1", "never"))
	}
	do(t, os.Symlink(filepath.Join(folder, "nowhere"), filepath.Join(folder, "fleet", "dangling")))
	do(t, syscall.Mkfifo(filepath.Join(folder, "fleet", "fifo"), 0o600))
	write(t, filepath.Join(folder, ".kube", "config"), contexts("1", "home"))
	t.Setenv("HOME", folder)
	in := func(path string) string { return filepath.Join(folder, path) }
	tests := map[string]struct {
		opts       kubeconfig.FilesOptions
		kubeconfig string
		want       []string
	}{
		"a folder":             {opts: kubeconfig.FilesOptions{Paths: []string{in("fleet")}}, want: []string{"a.yaml/one", "a.yaml/two", "b.yaml/one"}},
		"a file":               {opts: kubeconfig.FilesOptions{Paths: []string{in("fleet/b.yaml")}}, want: []string{"b.yaml/one"}},
		"a pattern":            {opts: kubeconfig.FilesOptions{Paths: []string{in("fleet/[ab].yaml")}}, want: []string{"a.yaml/one", "a.yaml/two", "b.yaml/one"}},
		"a pattern of folders": {opts: kubeconfig.FilesOptions{Paths: []string{in("*/*/*.yaml")}}, want: []string{"fleet/below/c.yaml/three"}},
		"a list": {
			opts: kubeconfig.FilesOptions{Paths: []string{in("fleet/b.yaml") + ":" + in("missing") + ":" + in("fleet/below/c.yaml"), in("fleet/b.yaml")}},
			want: []string{"b.yaml/one", "c.yaml/three"}},
		"the home":     {opts: kubeconfig.FilesOptions{Paths: []string{"~/.kube/config"}}, want: []string{"config/home"}},
		"the default":  {want: []string{"config/home"}},
		"the variable": {kubeconfig: in("fleet/b.yaml") + ":" + in(".kube/config"), want: []string{"b.yaml/one", "config/home"}},
		"chosen contexts": {
			opts: kubeconfig.FilesOptions{Paths: []string{in("fleet")}, Contexts: []string{"two"}}, want: []string{"a.yaml/two"}},
		"current contexts": {
			opts: kubeconfig.FilesOptions{Paths: []string{in("fleet")}, CurrentContext: true}, want: []string{"a.yaml", "b.yaml"}},
		"a template": {
			opts: kubeconfig.FilesOptions{Paths: []string{in("fleet")}, Member: "{{folder}}-{{context}}-{{file}}"},
			want: []string{"fleet-one-a.yaml", "fleet-two-a.yaml", "fleet-one-b.yaml"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.kubeconfig)
			waitFleet(t, startFiles(t, test.opts), test.want...)
		})
	}
}

func TestNewFilesRefusesUnusableOptions(t *testing.T) {
	tests := map[string]kubeconfig.FilesOptions{
		"a pattern that is none":            {Paths: []string{"/fleet/[a"}},
		"an empty path":                     {Paths: []string{"/a::/b"}},
		"contexts and the current one":      {Contexts: []string{"a"}, CurrentContext: true},
		"a template without variables":      {Member: "prod"},
		"a template with unknown variables": {Member: "{{file}}/{{cluster}}"},
		"a negative interval":               {PollInterval: -1},
	}
	for name, opts := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := kubeconfig.NewFiles(opts); err == nil {
				t.Error("unusable options are accepted")
			}
		})
	}
}

// Of 20 contexts only the one that is broken is disturbed, and what is repaired is engaged again.
func TestOneContextIsBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	good := contexts("1", names...)
	broken := func(name string) []byte {
		return bytes.ReplaceAll(good, []byte("https://"+name+".example.com"), []byte("not a server"))
	}
	write(t, path, good)
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{path}})
	for _, change := range []struct{ broken, repaired string }{{"c03", ""}, {"", "c03"}, {"c11", ""}, {"c12", "c11"}} {
		calls := len(r.Calls())
		data := good
		if change.broken != "" {
			data = broken(change.broken)
		}
		replace(t, path, data)
		var want []string
		if change.repaired != "" {
			r.WaitEngaged(t, "config/"+change.repaired)
			want = append(want, "config/"+change.repaired)
		}
		if change.broken != "" {
			hold := r.WaitHeld(t, "config/"+change.broken, backends.ReasonInvalidKubeconfig)
			if !hold.Keep || !strings.Contains(hold.Message, "held until") {
				t.Errorf("held as %+v, want the last good connection kept, and said so", hold)
			}
			want = append(want, "config/"+change.broken)
		}
		var got []string
		for _, call := range r.Calls()[calls:] {
			got = append(got, call.Name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: members that something was said about (-want +got):\n%s", change, diff)
		}
	}
}

// 200 files whose entries all have the same names, as kubeadm makes them, and one file with 200 contexts: each
// member has its own server and its own credential.
func TestManyContexts(t *testing.T) {
	folder := t.TempDir()
	var names []string
	for i := range 200 {
		name := fmt.Sprintf("c%03d", i)
		names = append(names, name)
		separate := bytes.ReplaceAll(contexts("separate", name), []byte(fmt.Sprintf("%q", name)), []byte(`"kubernetes-admin@kubernetes"`))
		write(t, filepath.Join(folder, "separate", name), separate)
	}
	write(t, filepath.Join(folder, "all"), contexts("all", names...))
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{folder, filepath.Join(folder, "separate")}})
	fleet := r.Fleet()
	type access struct{ server, token string }
	got, want := map[string]access{}, map[string]access{}
	for name, m := range fleet.Members {
		if m.Engaged == nil {
			t.Errorf("%s is %s", name, m)
			continue
		}
		got[name] = access{m.Engaged.Connection.Endpoint.Server, m.Engaged.Connection.Auth.Token.Reveal()}
	}
	for _, name := range names {
		server := "https://" + name + ".example.com"
		want["all/"+name] = access{server, name + "-all"}
		want[name+"/kubernetes-admin@kubernetes"] = access{server, name + "-separate"}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(access{})); diff != "" {
		t.Errorf("accesses (-want +got):\n%s", diff)
	}
}

// Contexts may have any name.
func TestOddContextNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	names := []string{"arn:aws:eks:eu-west-1:1:cluster/prod", "a b", "admin@prod", strings.Repeat("x", 253), "../up"}
	data := contexts("1", "plain")
	for _, name := range names {
		data = bytes.Replace(data, []byte("contexts:\n"), fmt.Appendf(nil, "contexts:\n- {name: %q, context: {cluster: plain, user: plain}}\n", name), 1)
	}
	write(t, path, append([]byte("\xef\xbb\xbf"), bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))...))
	want := []string{"config/plain"}
	for _, name := range names {
		want = append(want, "config/"+name)
	}
	waitFleet(t, startFiles(t, kubeconfig.FilesOptions{Paths: []string{path}}), want...)
}

// What is damaged is held for a while, what is refused is not.
func TestHoldFor(t *testing.T) {
	for _, holdFor := range []time.Duration{-1, time.Second} {
		t.Run(fmt.Sprint("for ", holdFor), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			write(t, path, contexts("1", "c"))
			r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{path}, HoldFor: holdFor})
			waitToken(t, r, "config/c", "c-1")
			calls := len(r.Calls())
			replace(t, path, []byte("rubbish"))
			r.Wait(t, "the hold ends", func(f backendtest.Fleet) bool {
				held := f.Members["config/c"].Held
				return held != nil && held.Rejected && !held.Keep && held.Reason == backends.ReasonInvalidKubeconfig
			})
			var kept []bool
			for _, call := range r.Calls()[calls:] {
				kept = append(kept, call.Member.Held.Keep)
			}
			want := []bool{true, false}
			if holdFor < 0 {
				want = want[1:]
			}
			if diff := cmp.Diff(want, kept); diff != "" {
				t.Errorf("what the holds kept (-want +got):\n%s", diff)
			}
			replace(t, path, contexts("2", "c"))
			waitToken(t, r, "config/c", "c-2")
		})
	}
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, contexts("1", "a", "b"))
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{path}})
	calls := len(r.Calls())
	replace(t, path, bytes.ReplaceAll(contexts("1", "a", "b"), []byte("https://a."), []byte("http://a.")))
	if hold := r.WaitHeld(t, "config/a", backends.ReasonPolicyViolation); hold.Keep {
		t.Errorf("refused: held as %+v, want not kept", hold)
	}
	if n := len(r.Calls()) - calls; n != 1 {
		t.Errorf("refusing one context made %d calls, want 1", n)
	}
	open := connection.LocalFiles()
	open.AllowPlainHTTP = true
	waitFleet(t, startFiles(t, kubeconfig.FilesOptions{Paths: []string{path}, Policy: &open}), "config/a", "config/b")
}

// Of two contexts whose names come out the same, the one listed first has the name.
func TestFilesNameConflict(t *testing.T) {
	root := t.TempDir()
	first, second := filepath.Join(root, "z", "config"), filepath.Join(root, "a", "config")
	write(t, first, contexts("first", "c"))
	write(t, second, contexts("second", "c"))
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{first, second}})
	waitToken(t, r, "config/c", "c-first")
	r.WaitHeld(t, second+"/c", backends.ReasonNameConflict)
	do(t, os.Remove(first))
	waitToken(t, r, "config/c", "c-second")
	r.WaitDisengaged(t, second+"/c")
}

// Files that are no kubeconfig are rejected, each in its own name.
func TestUnusableFiles(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	write(t, path("good"), contexts("1", "c"))
	write(t, path("large"), bytes.Repeat([]byte("#"), 2<<20))
	write(t, path("empty"), nil)
	write(t, path("two"), append(append(contexts("1", "c"), "\n---\n"...), contexts("1", "d")...))
	do(t, syscall.Mkfifo(path("fifo"), 0o600))
	r := startFiles(t, kubeconfig.FilesOptions{Paths: []string{
		path("good"), path("large"), path("empty"), path("two"), path("fifo"), path("absent")}})
	got := map[string]backends.Reason{}
	for name, m := range r.Fleet().Members {
		if m.Held != nil {
			got[name] = m.Held.Reason
		}
	}
	want := map[string]backends.Reason{
		"large": backends.ReasonFilesUnreadable, "fifo": backends.ReasonFilesUnreadable,
		"empty": backends.ReasonInvalidKubeconfig, "two": backends.ReasonInvalidKubeconfig,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is held (-want +got):\n%s", diff)
	}
	r.WaitEngaged(t, "good/c")
}
