package endtoend

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/fakeapi"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

// made counts what has to have a name of its own: a control plane knows each once, however often a test runs.
var made atomic.Int64

// Unique returns a name that no other call returns.
func Unique(prefix string) string { return fmt.Sprint(prefix, "-", made.Add(1)) }

// Member declares the cluster of a kubeconfig.
func Member(t testing.TB, name string, kubeconfig []byte) backends.Cluster {
	t.Helper()
	result, err := connection.ParseKubeconfig(t.Context(), kubeconfig, connection.KubeconfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return backends.Cluster{Name: name, Connection: result.Spec, Info: backends.Info{DisplayName: name}}
}

// Kubeconfig returns a kubeconfig for a server and a bearer token.
func Kubeconfig(t testing.TB, server string, caData []byte, token string) []byte {
	t.Helper()
	type object = map[string]any
	data, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []object{{"name": "c", "cluster": object{"server": server, "certificate-authority-data": caData}}},
		"users":    []object{{"name": "u", "user": object{"token": token}}},
		"contexts": []object{{"name": "c", "context": object{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ConfigMap creates a ConfigMap in the default namespace, under a name that is new, and returns namespace/name.
func ConfigMap(t testing.TB, plane *controlplane.ControlPlane, prefix string) string {
	t.Helper()
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: Unique(prefix)}}
	if err := c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	return "default/" + cm.Name
}

// NewUser makes a user with the given rights.
func NewUser(t testing.TB, plane *controlplane.ControlPlane, rules ...rbacv1.PolicyRule) *controlplane.User {
	t.Helper()
	user, err := plane.NewUser(t.Context(), Unique("user"), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

// Issue makes a new token of a user.
func Issue(t testing.TB, user *controlplane.User) *controlplane.Token {
	t.Helper()
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Silent returns the address of something that accepts connections and never answers.
func Silent(t testing.TB) string {
	t.Helper()
	p, err := faultproxy.Start("127.0.0.1:1", faultproxy.Options{Mode: faultproxy.Blackhole}) // it leads nowhere
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Addr()
}

// Counting returns a proxy before a control plane that counts the requests to it.
func Counting(t testing.TB, plane *controlplane.ControlPlane) *faultproxy.TLSProxy {
	t.Helper()
	p, err := faultproxy.StartTLS(plane.URL(), faultproxy.TLSOptions{CAData: plane.CAData()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Fakes starts a server of fake clusters.
func Fakes(t testing.TB) *fakeapi.Server {
	t.Helper()
	s := fakeapi.NewServer()
	t.Cleanup(s.Close)
	return s
}

// FakeMember declares a fake cluster that is reached through addr.
func FakeMember(c *fakeapi.Cluster, addr string, server *fakeapi.Server, name, token string) backends.Cluster {
	return backends.Cluster{Name: name, Connection: connection.Spec{
		Endpoint: connection.Endpoint{
			Server: strings.Replace(c.URL(), server.Addr(), addr, 1), CAData: server.CAData(),
		},
		Auth: connection.Auth{Token: connection.NewSecret(token)},
	}}
}

// PutConfigMap creates a ConfigMap in a fake cluster, under a name that is new, and returns namespace/name.
func PutConfigMap(t testing.TB, c *fakeapi.Cluster, prefix string) string {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: Unique(prefix)}}
	if err := c.Put(cm); err != nil {
		t.Fatal(err)
	}
	return "default/" + cm.Name
}
