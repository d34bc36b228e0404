package kubeconfig_test

import (
	"fmt"
	"testing"

	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
)

// Each preset takes a Secret as its project writes it: engaged, rotated, disengaged.
func TestPresets(t *testing.T) {
	hub := startHub(t)
	plain := func(key string) func(token string) map[string][]byte {
		return func(token string) map[string][]byte {
			return map[string][]byte{key: backendtest.Access{Server: "https://prod.example.com", Token: token}.Kubeconfig()}
		}
	}
	tests := map[kubeconfig.Preset]struct {
		secret string
		labels map[string]string
		data   func(token string) map[string][]byte
	}{
		kubeconfig.PresetMCR:     {"prod", mcrLabels(), plain("kubeconfig")},
		kubeconfig.PresetCAPI:    {"prod-kubeconfig", map[string]string{"cluster.x-k8s.io/cluster-name": "prod"}, plain("value")},
		kubeconfig.PresetFlux:    {"prod", nil, plain("value.yaml")},
		kubeconfig.PresetSveltos: {"prod-sveltos-kubeconfig", nil, plain("any")},
		kubeconfig.PresetHive:    {"prod", map[string]string{"hive.openshift.io/secret-type": "kubeconfig"}, plain("kubeconfig")},
		kubeconfig.PresetArgoCD: {"prod", map[string]string{"argocd.argoproj.io/secret-type": "cluster"}, func(token string) map[string][]byte {
			return map[string][]byte{"name": []byte("prod"), "server": []byte("https://prod.example.com"),
				"config": fmt.Appendf(nil, `{"bearerToken": %q}`, token)}
		}},
	}
	for preset, test := range tests {
		t.Run(string(preset), func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			r := backendtest.Start(t, newBackend(t, kubeconfig.Options{Hub: hub.Config(), Preset: preset, Namespaces: []string{namespace}}))
			member := namespace + "/" + test.secret
			for _, token := range []string{"first", "second"} {
				hub.Put(t, hubtest.Secret(namespace, test.secret, test.labels, test.data(token)))
				waitToken(t, r, member, token)
			}
			hub.Delete(t, hubtest.Secret(namespace, test.secret, nil, nil))
			r.WaitDisengaged(t, member)
		})
	}
}
