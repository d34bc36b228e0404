package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

func TestEngageReconcileDisengage(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "secrets")

	if _, err := f.Get(t.Context(), "secrets/a"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("Get of a name that nobody lists: %v, want ErrClusterNotFound", err)
	}
	before := endtoend.ConfigMap(t, plane, "before")
	inv.Say().Engage(endtoend.Member(t, "a", plane.Kubeconfig()))
	inv.Say().Synced()
	endtoend.Eventually(t, "the ConfigMap that was there is reconciled", func() bool { return f.Saw("secrets/a", before) > 0 })
	after := endtoend.ConfigMap(t, plane, "after")
	endtoend.Eventually(t, "the ConfigMap that came is reconciled", func() bool { return f.Saw("secrets/a", after) > 0 })
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("secrets/a", backends.Engaged, backends.ReasonReady) })

	s := f.Status("secrets/a")
	if s.Version != "v1.36.3" || s.UID != plane.UID() || s.Backend != "secrets" || s.Member != "a" || s.User == "" {
		t.Errorf("status: %+v", s)
	}
	if info, err := f.InfoFor("secrets/a"); err != nil || info.DisplayName != "a" {
		t.Errorf("InfoFor: %+v, %v", info, err)
	}

	inv.Say().Disengage("a", backends.ReasonDeleted)
	if _, err := f.Get(t.Context(), "secrets/a"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("Get after Disengage: %v, want ErrClusterNotFound", err)
	}
	endtoend.Eventually(t, "forgotten", func() bool { return len(f.Clusters()) == 0 })
}

// A cluster that accepts connections and never answers costs nobody else anything: the others are reconciled
// before the first attempt upon it has even ended.
func TestSilentMemberHarmsNobody(t *testing.T) {
	const good = 5
	for _, indexed := range []bool{false, true} {
		t.Run(fmt.Sprintf("indexed=%v", indexed), func(t *testing.T) {
			took := map[bool]time.Duration{}
			for _, dead := range []bool{false, true} {
				t.Run(fmt.Sprintf("dead=%v", dead), func(t *testing.T) {
					// A minute to connect: the silent member stays in its first attempt throughout.
					f := endtoend.Start(t, aggregate.Options{ConnectTimeout: time.Minute}, endtoend.Before(func(f *endtoend.Fleet) {
						if !indexed {
							return
						}
						err := f.Manager.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "first", func(o client.Object) []string {
							return []string{o.GetName()[:1]}
						})
						if err != nil {
							t.Fatal(err)
						}
					}))
					inv := f.Declare(t, "secrets")
					var clusters []backends.Cluster
					for i := range good {
						plane := planes.Get(t, controlplane.Options{Name: fmt.Sprintf("good-%d", i)})
						clusters = append(clusters, endtoend.Member(t, fmt.Sprint("good-", i), plane.Kubeconfig()))
					}
					if dead {
						kubeconfig := strings.Replace(string(planes.Get(t, controlplane.Options{Name: "good-0"}).Kubeconfig()),
							strings.TrimPrefix(clusters[0].Connection.Endpoint.Server, "https://"), endtoend.Silent(t), 1)
						clusters = append([]backends.Cluster{endtoend.Member(t, "dead", []byte(kubeconfig))}, clusters...)
					}
					begin := time.Now()
					for _, c := range clusters {
						inv.Say().Engage(c)
					}
					for i := range good {
						cluster := fmt.Sprint("secrets/good-", i)
						endtoend.Eventually(t, cluster+" reconciled", func() bool {
							return f.Saw(cluster, "default/kube-root-ca.crt") > 0 || f.Saw(cluster, "kube-system/extension-apiserver-authentication") > 0
						})
						endtoend.Eventually(t, cluster+" engaged", func() bool { return f.Is(cluster, backends.Engaged, backends.ReasonReady) })
					}
					took[dead] = time.Since(begin)
					if !dead {
						return
					}
					if s := f.Status("secrets/dead"); s.State != backends.Connecting || s.Attempt != 0 {
						t.Errorf("the silent member is %s after %d attempts, want its first attempt still running", s.State, s.Attempt)
					}
					_, err := f.Get(t.Context(), "secrets/dead")
					var notEngaged *backends.NotEngagedError
					if !errors.As(err, &notEngaged) || !errors.Is(err, backends.ErrNotEngaged) || errors.Is(err, multicluster.ErrClusterNotFound) {
						t.Errorf("Get of the silent member: %v, want a NotEngagedError", err)
					}
					if indexed {
						cl, err := f.Get(t.Context(), "secrets/good-0")
						if err != nil {
							t.Fatal(err)
						}
						var list corev1.ConfigMapList
						if err := cl.GetClient().List(t.Context(), &list, client.MatchingFields{"first": "e"}); err != nil || len(list.Items) == 0 {
							t.Errorf("list by index: %d items, %v", len(list.Items), err)
						}
					}
				})
			}
			t.Logf("%d members engaged and reconciled in %v, beside a silent one in %v", good, took[false], took[true])
		})
	}
}

// A rotated token is swapped in under the running cluster: nothing is engaged anew, and the old one can be revoked.
func TestRotatedTokenIsSwapped(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	user := endtoend.NewUser(t, plane, controlplane.Everything()...)
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "secrets")
	token := endtoend.Issue(t, user)
	inv.Say().Engage(endtoend.Member(t, "a", token.Kubeconfig()))
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("secrets/a", backends.Engaged, backends.ReasonReady) })
	cl, err := f.Get(t.Context(), "secrets/a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		next := endtoend.Issue(t, user)
		inv.Say().Engage(endtoend.Member(t, "a", next.Kubeconfig()))
		endtoend.Eventually(t, "the new token is in force", func() bool {
			config, err := f.RESTConfigFor(t.Context(), "secrets/a")
			return err == nil && config.BearerToken == next.Token()
		})
		if err := token.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		token = next
		cm := endtoend.ConfigMap(t, plane, fmt.Sprint("after-", i))
		endtoend.Eventually(t, "reconciled with the new token", func() bool { return f.Saw("secrets/a", cm) > 0 })
	}
	if now, err := f.Get(t.Context(), "secrets/a"); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}

	// A token that does not work leaves the old one in force, and says so.
	broken := endtoend.Member(t, "a", token.Kubeconfig())
	broken.Connection.Auth.Token = connection.NewSecret("no-token-of-this-cluster")
	inv.Say().Engage(broken)
	endtoend.Eventually(t, "the rejected credential is shown", func() bool {
		return f.Is("secrets/a", backends.Degraded, backends.ReasonCredentialRejected)
	})
	cm := endtoend.ConfigMap(t, plane, "after-all")
	endtoend.Eventually(t, "reconciled with the old token", func() bool { return f.Saw("secrets/a", cm) > 0 })
	if s := f.Status("secrets/a"); strings.Contains(fmt.Sprintf("%+v", s), broken.Connection.Auth.Token.Reveal()) {
		t.Error("the status shows a token")
	}
}

// Another cluster under the same name replaces the old one, and Get answers throughout.
func TestAnotherClusterReplaces(t *testing.T) {
	one, two := planes.Get(t, controlplane.Options{Name: "one"}), planes.Get(t, controlplane.Options{Name: "good-0"})
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "secrets")
	inv.Say().Engage(endtoend.Member(t, "a", one.Kubeconfig()))
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("secrets/a", backends.Engaged, backends.ReasonReady) })
	first, err := f.Get(t.Context(), "secrets/a")
	if err != nil {
		t.Fatal(err)
	}
	inv.Say().Engage(endtoend.Member(t, "a", two.Kubeconfig()))
	endtoend.Eventually(t, "replaced", func() bool {
		now, err := f.Get(t.Context(), "secrets/a")
		if err != nil {
			t.Fatalf("the name went without a cluster: %v", err)
		}
		return now != first
	})
	endtoend.Eventually(t, "its identity is shown", func() bool { return f.Status("secrets/a").UID == two.UID() })
	cm := endtoend.ConfigMap(t, two, "new")
	endtoend.Eventually(t, "reconciled in the new cluster", func() bool { return f.Saw("secrets/a", cm) > 0 })
}

// A member that stops answering is disengaged after enough probes, and engaged again when it is back.
func TestLostAndBack(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "good-1"})
	f := endtoend.Start(t, aggregate.Options{ProbeInterval: 200 * time.Millisecond, ProbeTimeout: 200 * time.Millisecond, ProbeFailures: 3,
		RetryMax: time.Second, ConnectTimeout: 2 * time.Second, DrainTimeout: time.Second})
	inv := f.Declare(t, "secrets")
	inv.Say().Engage(endtoend.Member(t, "a", plane.Kubeconfig()))
	endtoend.Eventually(t, "engaged", func() bool { return f.Is("secrets/a", backends.Engaged, backends.ReasonReady) })
	if err := plane.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	defer func() {
		if !resumed {
			_ = plane.Resume()
		}
	}()
	endtoend.Eventually(t, "degraded", func() bool { return f.Is("secrets/a", backends.Degraded, backends.ReasonProbeFailed) })
	endtoend.Eventually(t, "disconnected", func() bool { return f.Status("secrets/a").State == backends.Disconnected })
	if _, err := f.Get(t.Context(), "secrets/a"); !errors.Is(err, backends.ErrNotEngaged) {
		t.Errorf("Get while disconnected: %v, want ErrNotEngaged", err)
	}
	if err := plane.Resume(); err != nil {
		t.Fatal(err)
	}
	resumed = true
	endtoend.Eventually(t, "engaged again", func() bool { return f.Is("secrets/a", backends.Engaged, backends.ReasonReady) })
	cm := endtoend.ConfigMap(t, plane, "back")
	endtoend.Eventually(t, "reconciled again", func() bool { return f.Saw("secrets/a", cm) > 0 })
}

// What a restarted backend has not reported by the time it has synced is disengaged, and not before.
func TestBackendCrash(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	other := planes.Get(t, controlplane.Options{Name: "good-1"})
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "secrets")
	inv.Say().Engage(endtoend.Member(t, "a", plane.Kubeconfig()))
	inv.Say().Engage(endtoend.Member(t, "b", other.Kubeconfig()))
	inv.Say().Synced()
	endtoend.Eventually(t, "both engaged", func() bool {
		return f.Is("secrets/a", backends.Engaged, backends.ReasonReady) && f.Is("secrets/b", backends.Engaged, backends.ReasonReady)
	})
	a, err := f.Get(t.Context(), "secrets/a")
	if err != nil {
		t.Fatal(err)
	}
	old := inv.Say()
	inv.Fail <- errors.New("the inventory broke")
	endtoend.Eventually(t, "the failure is shown", func() bool {
		return f.Backends()[0].Health == backends.Health{Reason: backends.ReasonBackendFailed, Message: "the inventory broke"}
	})
	old.Disengage("a", backends.ReasonDeleted) // a late word of the run that has ended counts for nothing
	<-inv.Running
	inv.Say().Engage(endtoend.Member(t, "a", plane.Kubeconfig()))
	if !f.Is("secrets/b", backends.Engaged, backends.ReasonReady) {
		t.Error("a member was disengaged before the new run had synced")
	}
	inv.Say().Synced()
	endtoend.Eventually(t, "the member that is no longer listed is gone", func() bool { return f.Status("secrets/b").Name == "" })
	if now, err := f.Get(t.Context(), "secrets/a"); err != nil || now != a {
		t.Errorf("the member that is listed still was engaged anew (%v)", err)
	}
	if h := f.Backends()[0].Health; h != (backends.Health{}) {
		t.Errorf("health after all is well again: %+v", h)
	}
}

func TestAddAndRemoveBackends(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	f := endtoend.Start(t, aggregate.Options{})
	if err := f.Add("Not_A_Label", endtoend.NewInventory(), aggregate.BackendOptions{Prefix: "a/b"}); err == nil ||
		!strings.Contains(err.Error(), "Not_A_Label") || !strings.Contains(err.Error(), "a/b") {
		t.Errorf("both bad names are to be reported, got: %v", err)
	}
	for range 5 {
		inv := f.Declare(t, "secrets")
		if err := f.Add("secrets", endtoend.NewInventory(), aggregate.BackendOptions{}); !errors.Is(err, aggregate.ErrBackendExists) {
			t.Errorf("second backend of the name: %v, want ErrBackendExists", err)
		}
		inv.Say().Engage(endtoend.Member(t, "a", plane.Kubeconfig()))
		endtoend.Eventually(t, "engaged", func() bool { return f.Is("secrets/a", backends.Engaged, backends.ReasonReady) })
		if err := f.Remove(t.Context(), "secrets"); err != nil {
			t.Fatal(err)
		}
		if left := f.Clusters(); len(left) != 0 {
			t.Errorf("left after Remove: %+v", left)
		}
	}
	if err := f.Remove(t.Context(), "secrets"); !errors.Is(err, aggregate.ErrBackendNotFound) {
		t.Errorf("Remove of an unknown backend: %v, want ErrBackendNotFound", err)
	}
}

func TestSubscribe(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "secrets")
	inv.Say().Hold("a", backends.Hold{Reason: backends.ReasonSecretNotFound})
	ctx, cancel := context.WithTimeout(t.Context(), endtoend.Patience)
	defer cancel()
	step := 0
	for c := range f.Subscribe(ctx) {
		switch {
		case step == 0 && c.State == backends.Pending:
			inv.Say().Engage(endtoend.Member(t, "a", plane.Kubeconfig()))
			step++
		case step == 1 && c.State == backends.Engaged:
			inv.Say().Disengage("a", backends.ReasonDeleted)
			step++
		case step == 2 && c.Gone:
			cancel()
			step++
		}
	}
	if step != 3 {
		t.Errorf("the stream ended at step %d of 3", step)
	}
}

// A credential plugin is run for a cluster whose policy allowed it, and one that hangs harms its own cluster only.
func TestCredentialPlugins(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	token := endtoend.Issue(t, endtoend.NewUser(t, plane, controlplane.Everything()...))
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	works := script("works", `printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$TOKEN"`)
	hangs := script("hangs", "sleep 600")
	plugin := func(command string) *connection.Exec {
		return &connection.Exec{Command: command, APIVersion: "client.authentication.k8s.io/v1",
			Env: []connection.EnvVar{{Name: "TOKEN", Value: connection.NewSecret(token.Token())}}}
	}
	f := endtoend.Start(t, aggregate.Options{PluginTimeout: time.Second, RetryMax: time.Second})
	inv := f.Declare(t, "x")
	with := func(name, command string) backends.Cluster {
		c := endtoend.Member(t, name, token.Kubeconfig())
		c.Connection.Auth = connection.Auth{Exec: plugin(command)}
		return c
	}
	inv.Say().Engage(with("hangs", hangs))
	inv.Say().Engage(with("works", works))
	endtoend.Eventually(t, "the one that works is engaged", func() bool { return f.Is("x/works", backends.Engaged, backends.ReasonReady) })
	if s := f.Status("x/works"); !strings.HasPrefix(s.User, "system:serviceaccount:") {
		t.Errorf("the user is %q", s.User)
	}
	endtoend.Eventually(t, "the one that hangs is shown", func() bool { return f.Is("x/hangs", backends.Connecting, backends.ReasonPluginFailed) })
	if s := fmt.Sprintf("%+v", f.Clusters()); strings.Contains(s, token.Token()) {
		t.Error("the status shows a token")
	}
}
