package kubeconfig_test

import (
	"testing"

	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// mcrLabels are what multicluster-runtime's kubeconfig provider looks for.
func mcrLabels() map[string]string {
	return map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"}
}

func startHub(t *testing.T) *hubtest.Hub {
	return hubtest.New(t, planes.Get(t, controlplane.Options{Name: "hub"}))
}

func newBackend(t *testing.T, opts kubeconfig.Options) *kubeconfig.Backend {
	t.Helper()
	b, err := kubeconfig.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	hub := startHub(t)
	backendtest.Run(t, backendtest.Harness{
		New: func(t *testing.T) backendtest.Inventory {
			hub := startHub(t)
			namespace := hub.Namespace(t, nil)
			put := func(t *testing.T, name string, data []byte) {
				hub.Put(t, hubtest.Secret(namespace, name, mcrLabels(), map[string][]byte{"kubeconfig": data}))
			}
			return backendtest.Inventory{
				Backend: newBackend(t, kubeconfig.Options{Hub: hub.Config(), Namespaces: []string{namespace}}),
				Member:  func(name string) string { return namespace + "/" + name },
				Put:     func(t *testing.T, name string, a backendtest.Access) { put(t, name, a.Kubeconfig()) },
				Break:   func(t *testing.T, name string) { put(t, name, backendtest.BrokenKubeconfig()) },
				Delete:  func(t *testing.T, name string) { hub.Delete(t, hubtest.Secret(namespace, name, nil, nil)) },
			}
		},
		StopHub: func(t *testing.T) {
			if err := hub.StopAPIServer(); err != nil {
				t.Fatal(err)
			}
		},
		StartHub: func(t *testing.T) {
			if err := hub.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	})
}
