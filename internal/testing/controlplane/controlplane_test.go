//go:build linux || darwin || freebsd

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var readConfigMaps = rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}

func TestStartAll(t *testing.T) {
	began := time.Now()
	both, err := StartAll(t.Context(), 2, Options{Name: "pair"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started two control planes in %s", time.Since(began))
	for _, c := range both {
		version, err := clients(t, c.Config()).Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv("KUBEBUILDER_ASSETS") == "" && (version.GitVersion != "v1.36.3" || version.Major != "1" || version.Minor != "36") {
			t.Errorf("%s says it is %s (%s.%s), want v1.36.3", c.Name(), version.GitVersion, version.Major, version.Minor)
		}
	}
	if both[0].UID() == "" || both[0].UID() == both[1].UID() {
		t.Errorf("the UIDs are %q and %q, want two different ones", both[0].UID(), both[1].UID())
	}
	if both[0].Name() != "pair-1" || both[1].Name() != "pair-2" {
		t.Errorf("the names are %q and %q, want pair-1 and pair-2", both[0].Name(), both[1].Name())
	}

	left := []remains{remainsOf(both[0]), remainsOf(both[1])}
	if err := both[0].Pause(); err != nil { // a paused server is stopped as well
		t.Fatal(err)
	}
	began = time.Now()
	if err := StopAll(both...); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped them in %s", time.Since(began))
	for _, r := range left {
		if what := r.present(); what != "" {
			t.Errorf("after Stop there is still %s", what)
		}
	}
	if err := both[0].Stop(); err != nil {
		t.Errorf("the second Stop failed: %v", err)
	}
	if err := both[0].Restart(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("Restart after Stop: %v, want %v", err, ErrStopped)
	}
}

func TestNothingOutlivesAPanic(t *testing.T) {
	cmd := helper(t, "panic", "")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var r remains
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended well, want a panic")
	}
	eventually(t, 30*time.Second, "nothing left of the control plane", func(context.Context) bool { return r.present() == "" })
}

func TestStartFailsWithTheServersWords(t *testing.T) {
	began := time.Now()
	_, err := Start(t.Context(), Options{Name: "odd", APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "odd") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error is %v, want one that names control plane and flag", err)
	}
	if took := time.Since(began); took > startLimit/2 {
		t.Errorf("a server that ends at once was waited for %s", took)
	}
}

func TestUserHasTheGivenRights(t *testing.T) {
	c := planes.Get(t, Options{Name: "shared"})
	user, err := c.NewUser(t.Context(), "reader", readConfigMaps)
	if err != nil {
		t.Fatal(err)
	}
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(token.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	k := clients(t, config).CoreV1()
	if _, err := k.ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list what is allowed: %v", err)
	}
	if _, err := k.Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list what is not allowed: %v, want it forbidden", err)
	}
	if err := user.SetRules(t.Context(), rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"secrets"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "secrets allowed and config maps forbidden", func(ctx context.Context) bool {
		_, secrets := k.Secrets("default").List(ctx, metav1.ListOptions{})
		_, configMaps := k.ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return secrets == nil && apierrors.IsForbidden(configMaps)
	})
	if strings.Contains(token.String(), token.Token()) {
		t.Error("a formatted token shows itself")
	}
}

func TestClientCertificate(t *testing.T) {
	c := planes.Get(t, Options{Name: "shared"})
	for _, tt := range []struct {
		group string
		want  func(error) bool
	}{
		{"system:masters", func(err error) bool { return err == nil }},
		{"nobody:special", apierrors.IsForbidden},
	} {
		credential, err := c.ClientCertificate("jane", tt.group)
		if err != nil {
			t.Fatal(err)
		}
		_, err = clients(t, credential.Config()).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		if !tt.want(err) {
			t.Errorf("list Secrets as a member of %s: %v", tt.group, err)
		}
	}
}

func TestRevokedTokenIsRefused(t *testing.T) {
	c := planes.Get(t, Options{Name: "shared"})
	user, err := c.NewUser(t.Context(), "short-lived", readConfigMaps)
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]*Token, 3)
	use := make([]func(context.Context) error, len(tokens))
	for i := range tokens {
		if tokens[i], err = user.Issue(t.Context()); err != nil {
			t.Fatal(err)
		}
		k := clients(t, tokens[i].Config())
		use[i] = func(ctx context.Context) error {
			_, err := k.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err
		}
	}
	const kept, used, unused = 0, 1, 2
	for _, i := range []int{kept, used} {
		if err := use[i](t.Context()); err != nil {
			t.Errorf("use token %d: %v", i, err)
		}
	}
	for _, i := range []int{used, unused} {
		if err := tokens[i].Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for _, i := range []int{unused, used} { // the server remembers the used one for ten seconds
		eventually(t, 30*time.Second, "401 for a revoked token", func(ctx context.Context) bool {
			return apierrors.IsUnauthorized(use[i](ctx))
		})
		t.Logf("token %d refused %s after it was revoked", i, time.Since(began))
	}
	if err := use[kept](t.Context()); err != nil {
		t.Errorf("the token that was not revoked: %v", err)
	}
}

func TestPausedServerAcceptsAndNeverAnswers(t *testing.T) {
	c := planes.Get(t, Options{Name: "shared"})
	k := clients(t, c.Config())
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", u.Host, 10*time.Second)
	if err != nil {
		t.Fatalf("connect to a paused server: %v", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ask a paused server: %v, want a timeout", err)
	}
	if err := c.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("ask a resumed server: %v", err)
	}
}

func TestStoppedServerRefusesAndKeepsItsData(t *testing.T) {
	c := planes.Get(t, Options{Name: "shared"})
	k := clients(t, c.Config())
	url, uid := c.URL(), c.UID()
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := k.CoreV1().ConfigMaps("default").Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("ask a stopped server: %v, want the connection refused", err)
	}
	if err := c.Pause(); !errors.Is(err, errNotRunning) {
		t.Errorf("pause a stopped server: %v, want %v", err, errNotRunning)
	}
	for _, step := range []func(context.Context) error{c.StartAPIServer, c.StartAPIServer, c.Restart} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := k.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("read what was written before: %v", err)
		}
	}
	ns, err := k.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(ns.UID) != uid || c.URL() != url {
		t.Errorf("after a restart it is %s at %s, want %s at %s", ns.UID, c.URL(), uid, url)
	}
}

func TestCRDsComeAndGo(t *testing.T) {
	c := planes.Get(t, Options{Name: "shared"})
	sets := []CRDs{ClusterAPI, ClusterInventory}
	for range 2 { // again is no error
		if err := c.InstallCRDs(t.Context(), sets...); err != nil {
			t.Fatal(err)
		}
	}
	k, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	kinds := []schema.GroupVersionResource{
		{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "clusters"},
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"},
		{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"},
		{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "placementdecisions"},
	}
	for _, kind := range kinds {
		if _, err := k.Resource(kind).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("list %s: %v", kind, err)
		}
	}
	profile := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
		"metadata": map[string]any{"name": "one"},
		"spec":     map[string]any{"clusterManager": map[string]any{"name": "nobody"}},
	}}
	if _, err := k.Resource(kinds[2]).Namespace("default").Create(t.Context(), profile, metav1.CreateOptions{}); err != nil {
		t.Errorf("create a ClusterProfile: %v", err)
	}
	if err := c.DeleteCRDs(t.Context(), sets...); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if _, err := k.Resource(kind).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("list %s after its CRD was deleted: %v, want it not found", kind, err)
		}
	}
}

// clients returns clients whose connections end with the test.
func clients(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	k, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// present says what is still there; nothing if empty.
func (r remains) present() string {
	for _, pid := range r.PIDs {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return "process " + strconv.Itoa(pid)
		}
	}
	if r.Dir != "" && exists(r.Dir) {
		return r.Dir
	}
	return ""
}

// eventually waits until a condition holds, and fails the test if that takes longer than limit.
func eventually(t *testing.T, limit time.Duration, what string, holds func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		t.Fatalf("no %s within %s: %v", what, limit, err)
	}
}
