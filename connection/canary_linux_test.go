package connection

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// watch returns a function that reports whether anything in dir was opened since the last call. The kernel
// queues such events before the call that opens something returns, so nothing has to be waited for.
func watch(t *testing.T, dir string) func() bool {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_OPEN|syscall.IN_ACCESS); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	return func() bool {
		n, err := syscall.Read(fd, buffer)
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
		return n > 0
	}
}

// TestOnlyRegularFilesAreOpened asks the kernel: to open a device may already do something.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	opened := watch(t, dir)
	if _, err := ReadFile(t.Context(), fifo); !errors.Is(err, ErrNotRegular) || opened() {
		t.Errorf("a FIFO was opened, or read with %v", err)
	}
	if _, err := ReadFile(t.Context(), file); err != nil || !opened() {
		t.Errorf("a file was not seen to be opened: %v", err)
	}
}

// TestCanaries parses what names a real script and real files. That the script is run, or a file opened, before policy
// allows it would be seen by the kernel. The plugin that comes of parsing is then run, as an engagement does it: that the
// script which policy allows is seen to have run, and no other, proves the proof.
func TestCanaries(t *testing.T) {
	dir, proof := t.TempDir(), t.TempDir()
	script, file, sung := filepath.Join(dir, "canary.sh"), filepath.Join(dir, "canary"), filepath.Join(proof, "sung")
	if err := errors.Join(
		os.WriteFile(script, []byte("#!/bin/sh\n: >"+sung+"\n"), 0o700),
		os.WriteFile(file, []byte(marker), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	touched := watch(t, dir)
	plugin := "exec: {command: " + script + ", apiVersion: " + execV1 + "}"
	for _, test := range []struct {
		name          string
		cluster, user string
		policy        Policy
		want          string
		opened, run   bool
	}{
		{"a plugin", plainServer, plugin, Policy{}, `users["admin"].exec: Exec`, false, false},
		{"a plugin that is allowed is not run by parsing", plainServer, plugin, Policy{ExecCommands: []string{script}}, "", false, true},
		{"a token file", plainServer, "tokenFile: " + file, Policy{}, `users["admin"].tokenFile: Files`, false, false},
		{"a certificate and a key", plainServer, "client-certificate: " + file + "\nclient-key: " + file, Policy{},
			`users["admin"].client-certificate: Files; users["admin"].client-key: Files`, false, false},
		{"a CA", plainServer + "\ncertificate-authority: " + file, plainUser, Policy{}, `clusters["prod"].certificate-authority: Files`, false, false},
		{"a token file of a user that is refused otherwise", plainServer, "tokenFile: " + file + "\nas: jane", LocalFiles(),
			`users["admin"].as: Impersonation`, false, false},
		{"a token file of a local kubeconfig", plainServer, "tokenFile: " + file, LocalFiles(), "", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := ParseKubeconfig(t.Context(), []byte(kubeconfig(test.cluster, test.user)), KubeconfigOptions{Policy: test.policy})
			if got := reasons(t, err); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := touched(); got != test.opened {
				t.Errorf("opened: %t, want %t", got, test.opened)
			}
			if _, err := os.Stat(sung); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("the script was run: %v", err)
			}
			if x := r.Spec.Auth.Exec; x != nil {
				if err := exec.CommandContext(t.Context(), x.Command).Run(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(sung); (err == nil) != test.run {
				t.Errorf("run in the end: %t, want %t", err == nil, test.run)
			}
			if err := os.RemoveAll(sung); err != nil {
				t.Fatal(err)
			}
			touched()
		})
	}
}
