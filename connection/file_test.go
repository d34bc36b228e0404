package connection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

const fileUser = "client-certificate: pki/tls.crt\nclient-key: ../kube/pki/tls.key\ntokenFile: /run/token"

// recorder is a ReadFile that keeps account of what is opened.
type recorder struct {
	files  map[string]string
	opened []string
}

func (r *recorder) read(_ context.Context, path string) ([]byte, error) {
	r.opened = append(r.opened, path)
	if content, ok := r.files[path]; ok {
		return []byte(content), nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

func newRecorder() *recorder {
	return &recorder{files: map[string]string{
		"/etc/kube/ca.crt": admin().cert, "/etc/kube/pki/tls.crt": admin().cert, "/etc/kube/pki/tls.key": admin().key, "/run/token": "abc\n",
	}}
}

func TestFilesAreReadIntoTheSpec(t *testing.T) {
	disk := newRecorder()
	data := kubeconfig(plainServer+"\ncertificate-authority: ca.crt", fileUser+"\ntoken: unused")
	got, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: LocalFiles(), Dir: "/etc/kube", ReadFile: disk.read})
	if err != nil {
		t.Fatal(err)
	}
	want := Result{
		Name: "main",
		Spec: Spec{
			Endpoint: Endpoint{Server: "https://prod.example.com:6443", CAData: []byte(admin().cert)},
			Auth: Auth{
				Token: NewSecret("abc"), ClientCertificateData: []byte(admin().cert), ClientKeyData: NewSecret(admin().key),
			},
		},
		Ignored: []string{`users["admin"].token`},
		Files:   []string{"/etc/kube/ca.crt", "/etc/kube/pki/tls.crt", "/etc/kube/pki/tls.key", "/run/token"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDataWinsOverFiles(t *testing.T) {
	disk := newRecorder()
	data := kubeconfig(secureCluster()+"\ncertificate-authority: ca.crt",
		"client-certificate: x\nclient-key: y\nclient-certificate-data: "+b64(admin().cert)+"\nclient-key-data: "+b64(admin().key))
	got, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: LocalFiles(), Dir: "/etc/kube", ReadFile: disk.read})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`clusters["prod"].certificate-authority`, `users["admin"].client-certificate`, `users["admin"].client-key`}
	if diff := cmp.Diff(want, got.Ignored); diff != "" {
		t.Error(diff)
	}
	if len(disk.opened)+len(got.Files) != 0 {
		t.Errorf("opened %q, to be watched %q", disk.opened, got.Files)
	}
}

func TestNothingIsOpenedThatPolicyRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		cluster, user string
		policy        Policy
	}{
		"files":                           {plainServer + "\ncertificate-authority: ca.crt", fileUser, Policy{}},
		"another field of the same user":  {plainServer, fileUser + "\nas: jane", LocalFiles()},
		"the cluster of a user's files":   {"server: http://prod.example.com", fileUser, LocalFiles()},
		"a host, even in audit":           {"server: https://127.1", fileUser, Policy{Audit: true}},
		"an auth provider, even in audit": {plainServer, fileUser + "\nauth-provider: {name: gcp}", Policy{Audit: true}},
	} {
		disk := newRecorder()
		_, err := ParseKubeconfig(t.Context(), []byte(kubeconfig(test.cluster, test.user)),
			KubeconfigOptions{Policy: test.policy, Dir: "/etc/kube", ReadFile: disk.read})
		var refusal *PolicyError
		if !errors.As(err, &refusal) || len(disk.opened) != 0 {
			t.Errorf("%s: got %v, and opened %q", name, err, disk.opened)
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, size int) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("empty", 0)
	write("ordinary", 5)
	write("largest", DefaultMaxSize)
	write("larger", DefaultMaxSize+1)
	if err := errors.Join(
		os.Symlink("ordinary", path("link")), os.Symlink("fifo", path("link-to-fifo")), os.Symlink("link-to-self", path("link-to-self")),
		syscall.Mkfifo(path("fifo"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		size int
		err  error
	}{
		{name: "empty"},
		{name: "ordinary", size: 5},
		{name: "largest", size: DefaultMaxSize},
		{name: "link", size: 5},
		{name: "larger", err: ErrTooLarge},
		{name: "fifo", err: ErrNotRegular},
		{name: "link-to-fifo", err: ErrNotRegular},
		{name: "link-to-self", err: syscall.ELOOP},
		{name: ".", err: ErrNotRegular},
		{name: "../../../../../../../../dev/zero", err: ErrNotRegular},
		{name: "missing", err: fs.ErrNotExist},
	} {
		data, err := ReadFile(t.Context(), path(test.name))
		if len(data) != test.size || !errors.Is(err, test.err) {
			t.Errorf("%s: read %d bytes, error %v; want %d, %v", test.name, len(data), err, test.size, test.err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadFile(ctx, path("ordinary")); !errors.Is(err, context.Canceled) {
		t.Errorf("read under an ended context: %v", err)
	}
}

func TestFailuresToReadAreWorded(t *testing.T) {
	leaky := fmt.Errorf("open %s", marker)
	for _, test := range []struct {
		err  error
		want Problem
	}{
		{&fs.PathError{Op: marker, Path: marker, Err: syscall.ENOENT}, ProblemFileNotFound},
		{&fs.PathError{Op: marker, Path: marker, Err: syscall.EACCES}, ProblemFileForbidden},
		{fmt.Errorf("%w: %w", leaky, ErrNotRegular), ProblemFileNotRegular},
		{fmt.Errorf("%w: %w", leaky, ErrTooLarge), ProblemFileTooLarge},
		{fmt.Errorf("%w: %w", leaky, context.DeadlineExceeded), ProblemFileTimeout},
		{leaky, ProblemFileUnreadable},
	} {
		read := func(context.Context, string) ([]byte, error) { return nil, test.err }
		data := kubeconfig(plainServer, "tokenFile: /run/token")
		r, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: LocalFiles(), ReadFile: read})
		if got, want := reasons(t, err), `users["admin"].tokenFile: `+string(test.want); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), marker) {
			t.Errorf("the error repeats the reader's: %v", err)
		}
		if diff := cmp.Diff([]string{"/run/token"}, r.Files); diff != "" {
			t.Errorf("a file that cannot be read is not reported for watching: %s", diff)
		}
	}
	_, err := ParseKubeconfig(t.Context(), []byte(kubeconfig(plainServer, "tokenFile: "+filepath.Join(t.TempDir(), "x"))),
		KubeconfigOptions{Policy: LocalFiles()})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("errors.Is does not find fs.ErrNotExist in %v", err)
	}
}

func TestAReaderHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := func(ctx context.Context, _ string) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		data := kubeconfig(plainServer, "tokenFile: /run/token")
		_, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: LocalFiles(), ReadFile: hanging})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRelativePathsNeedAFolder(t *testing.T) {
	disk := newRecorder()
	for user, want := range map[string]string{
		"tokenFile: run/token":                                  `users["admin"].tokenFile: is a relative path, and there is no folder to resolve it against`,
		"exec: {command: ./plugin, apiVersion: " + execV1 + "}": `users["admin"].exec: Exec`,
	} {
		_, err := ParseKubeconfig(t.Context(), []byte(kubeconfig(plainServer, user)), KubeconfigOptions{Policy: LocalFiles(), ReadFile: disk.read})
		if got := reasons(t, err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if len(disk.opened) != 0 {
		t.Errorf("opened %q", disk.opened)
	}
}

func TestLargeFilesOfAnotherReaderAreRefused(t *testing.T) {
	disk := newRecorder()
	disk.files["/run/token"] = strings.Repeat("x", DefaultMaxSize+1)
	_, err := ParseKubeconfig(t.Context(), []byte(kubeconfig(plainServer, "tokenFile: /run/token")),
		KubeconfigOptions{Policy: LocalFiles(), ReadFile: disk.read})
	if got, want := reasons(t, err), `users["admin"].tokenFile: refers to a file that is too large`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
