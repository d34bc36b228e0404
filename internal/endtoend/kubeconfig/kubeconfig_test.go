package kubeconfig_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// volume is a projected token as the kubelet mounts it: the file is a link through ..data, which is exchanged.
type volume struct {
	folder string
	turn   int
}

func (v *volume) token() string { return filepath.Join(v.folder, "token") }

// write gives the volume its next token.
func (v *volume) write(t *testing.T, token string) {
	t.Helper()
	v.turn++
	data := fmt.Sprintf("..%d", v.turn)
	steps := []func() error{
		func() error { return os.Mkdir(filepath.Join(v.folder, data), 0o755) },
		func() error { return os.WriteFile(filepath.Join(v.folder, data, "token"), []byte(token), 0o600) },
		func() error { return os.Symlink(data, filepath.Join(v.folder, "..data_tmp")) },
		func() error {
			return os.Rename(filepath.Join(v.folder, "..data_tmp"), filepath.Join(v.folder, "..data"))
		},
	}
	if v.turn == 1 {
		steps = append(steps, func() error { return os.Symlink(filepath.Join("..data", "token"), v.token()) })
	} else {
		steps = append(steps, func() error { return os.RemoveAll(filepath.Join(v.folder, fmt.Sprintf("..%d", v.turn-1))) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// A token file that is exchanged as soon as its token is in force, and whose old tokens are revoked, costs no LIST and no
// engagement, and a controller with three watches misses nothing.
func TestTokenFileIsRotated(t *testing.T) {
	const rotations = 10
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	proxy := endtoend.Counting(t, plane)
	admin, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	user := endtoend.NewUser(t, plane, controlplane.Everything()...)
	token := endtoend.Issue(t, user)
	projected := &volume{folder: t.TempDir()}
	projected.write(t, token.Token())
	config := filepath.Join(t.TempDir(), "config")
	data := bytes.ReplaceAll(endtoend.Kubeconfig(t, proxy.URL(), proxy.CAData(), "t"),
		[]byte(`"token":"t"`), fmt.Appendf(nil, `"tokenFile":%q`, projected.token()))
	if err := os.WriteFile(config, data, 0o600); err != nil {
		t.Fatal(err)
	}

	backend, err := kubeconfig.NewFiles(kubeconfig.FilesOptions{Paths: []string{config}})
	if err != nil {
		t.Fatal(err)
	}
	var kinds endtoend.ThreeKinds
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithoutController(), endtoend.Before(kinds.Watch(t)))
	if err := f.Add("files", backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Rotate(t, &kinds, endtoend.Rotation{Cluster: "files/config/c", Admin: admin, Proxy: proxy, User: user, Token: token, Times: rotations,
		Write: func(token string) { projected.write(t, token) }})
}
