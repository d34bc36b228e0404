package inventory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/inventory"
)

// A provider file may be written after the start, changed, broken and removed while clusters are engaged by it.
func TestProviderFile(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	member := namespace + "/prod"
	profile := newProfile(namespace, "prod", metav1.ConditionTrue)
	profile.Status.AccessProviders = []v1alpha1.AccessProvider{offer("open-cluster-management", "https://proxy.example.com:9092/prod")}
	hub.Put(t, profile)
	path := filepath.Join(t.TempDir(), "providers.json")
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	provider := func(command string) string {
		return `{"providers":[{"name":"open-cluster-management","execConfig":{
			"apiVersion":"client.authentication.k8s.io/v1","command":"` + command + `","provideClusterInfo":true}}]}`
	}
	backend, err := inventory.New(inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace}, ProviderFile: path})
	if err != nil {
		t.Fatal(err)
	}
	r := backendtest.Start(t, backend)
	r.WaitHealth(t, backends.ReasonProviderFileInvalid)
	write(provider("/plugins/one"))
	if c := r.WaitEngaged(t, member); c.Connection.Auth.Exec.Command != "/plugins/one" {
		t.Errorf("the plugin is %s", c.Connection.Auth.Exec.Command)
	}
	r.WaitHealth(t, "")
	seen := len(r.Calls())
	for _, broken := range []string{provider("MARKED")[:60], `{}`, `{"providers":[{"name":"a"}]}`} {
		write(broken)
		health := r.WaitHealth(t, backends.ReasonProviderFileInvalid)
		if strings.Contains(health.Message, "MARKED") || !strings.Contains(health.Message, "stays in force") {
			t.Errorf("health of a broken file: %s", health.Message)
		}
		write(provider("/plugins/one"))
		r.WaitHealth(t, "")
	}
	for _, call := range r.Calls()[seen:] {
		if call.Method == "Hold" || call.Method == "Disengage" ||
			call.Method == "Engage" && call.Member.Engaged.Connection.Auth.Exec.Command != "/plugins/one" {
			t.Errorf("%s(%s) because of a broken file", call.Method, call.Name)
		}
	}
	write(provider("/plugins/two"))
	r.Wait(t, "the other plugin is used", func(f backendtest.Fleet) bool {
		c := f.Members[member].Engaged
		return c != nil && c.Connection.Auth.Exec.Command == "/plugins/two"
	})
}
