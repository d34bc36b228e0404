package kubeconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/endtoend"
)

// Of a file with 200 contexts each reaches its own server with its own credential, those that never answer hold up none of
// the others, and all this under a manager whose own cluster does not exist.
func TestManyContexts(t *testing.T) {
	const total, everyDead = 200, 10
	server, silent := endtoend.Fakes(t), endtoend.Silent(t)
	var clusters, users, contexts strings.Builder
	objects := map[string]string{} // the ConfigMap that only this cluster has, by public name
	var dead []string
	for i := range total {
		name := fmt.Sprintf("c%03d", i)
		c := server.Cluster(name)
		token := "token-of-" + name
		c.AllowToken(token, "user-of-"+name)
		url, public := c.URL(), "files/config/"+name
		if i%everyDead == 0 {
			url = strings.Replace(url, server.Addr(), silent, 1)
			dead = append(dead, public)
		} else {
			objects[public] = endtoend.PutConfigMap(t, c, name)
		}
		fmt.Fprintf(&clusters, "- {name: %s, cluster: {server: %q, certificate-authority: ca.crt}}\n", name, url)
		fmt.Fprintf(&users, "- {name: %s, user: {token: %s}}\n", name, token)
		fmt.Fprintf(&contexts, "- {name: %s, context: {cluster: %s, user: %s}}\n", name, name, name)
	}
	folder := t.TempDir()
	for name, data := range map[string]string{
		"ca.crt": string(server.CAData()),
		"config": fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n%susers:\n%scontexts:\n%s", &clusters, &users, &contexts),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	backend, err := kubeconfig.NewFiles(kubeconfig.FilesOptions{Paths: []string{filepath.Join(folder, "config")}})
	if err != nil {
		t.Fatal(err)
	}
	f := endtoend.Start(t, aggregate.Options{})
	if err := f.Add("files", backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	for public, object := range objects {
		endtoend.Eventually(t, public+" is engaged, and its ConfigMap seen", func() bool {
			return f.Engaged(public) && f.Saw(public, object) > 0
		})
	}
	for _, public := range dead {
		endtoend.Eventually(t, public+" is dialled in vain", func() bool { return f.Status(public).Attempt > 0 })
		if f.Engaged(public) {
			t.Errorf("%s is engaged, though it never answers", public)
		}
	}
}
