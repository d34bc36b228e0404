package aggregate_test

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
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// started adds an inventory to the fleet and waits until it runs.
func started(t *testing.T, f *fleet, backend string) *inventory {
	t.Helper()
	inv := newInventory()
	if err := f.Add(backend, inv, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
	<-inv.running
	return inv
}

func TestEngageReconcileDisengage(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "secrets")

	if _, err := f.Get(t.Context(), "secrets/a"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("Get of a name that nobody lists: %v, want ErrClusterNotFound", err)
	}
	before := configMap(t, plane, "before")
	inv.say().Engage(member(t, "a", plane.Kubeconfig()))
	inv.say().Synced()
	eventually(t, "the ConfigMap that was there is reconciled", func() bool { return f.saw("secrets/a", before) > 0 })
	after := configMap(t, plane, "after")
	eventually(t, "the ConfigMap that came is reconciled", func() bool { return f.saw("secrets/a", after) > 0 })
	eventually(t, "engaged", func() bool { return f.is("secrets/a", backends.Engaged, backends.ReasonReady) })

	s := f.status("secrets/a")
	if s.Version != "v1.36.3" || s.UID != plane.UID() || s.Backend != "secrets" || s.Member != "a" || s.User == "" {
		t.Errorf("status: %+v", s)
	}
	if info, err := f.InfoFor("secrets/a"); err != nil || info.DisplayName != "a" {
		t.Errorf("InfoFor: %+v, %v", info, err)
	}

	inv.say().Disengage("a", backends.ReasonDeleted)
	if _, err := f.Get(t.Context(), "secrets/a"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("Get after Disengage: %v, want ErrClusterNotFound", err)
	}
	eventually(t, "forgotten", func() bool { return len(f.Clusters()) == 0 })
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
					f := newFleet(t, aggregate.Options{ConnectTimeout: time.Minute}, func(f *fleet) {
						if !indexed {
							return
						}
						err := f.mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "first", func(o client.Object) []string {
							return []string{o.GetName()[:1]}
						})
						if err != nil {
							t.Fatal(err)
						}
					})
					inv := started(t, f, "secrets")
					var clusters []backends.Cluster
					for i := range good {
						plane := planes.Get(t, controlplane.Options{Name: fmt.Sprintf("good-%d", i)})
						clusters = append(clusters, member(t, fmt.Sprint("good-", i), plane.Kubeconfig()))
					}
					if dead {
						kubeconfig := strings.Replace(string(planes.Get(t, controlplane.Options{Name: "good-0"}).Kubeconfig()),
							strings.TrimPrefix(clusters[0].Connection.Endpoint.Server, "https://"), silent(t), 1)
						clusters = append([]backends.Cluster{member(t, "dead", []byte(kubeconfig))}, clusters...)
					}
					begin := time.Now()
					for _, c := range clusters {
						inv.say().Engage(c)
					}
					for i := range good {
						cluster := fmt.Sprint("secrets/good-", i)
						eventually(t, cluster+" reconciled", func() bool {
							return f.saw(cluster, "default/kube-root-ca.crt") > 0 || f.saw(cluster, "kube-system/extension-apiserver-authentication") > 0
						})
						eventually(t, cluster+" engaged", func() bool { return f.is(cluster, backends.Engaged, backends.ReasonReady) })
					}
					took[dead] = time.Since(begin)
					if !dead {
						return
					}
					if s := f.status("secrets/dead"); s.State != backends.Connecting || s.Attempt != 0 {
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
	user := newUser(t, plane, controlplane.Everything()...)
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "secrets")
	token := issue(t, user)
	inv.say().Engage(member(t, "a", token.Kubeconfig()))
	eventually(t, "engaged", func() bool { return f.is("secrets/a", backends.Engaged, backends.ReasonReady) })
	cl, err := f.Get(t.Context(), "secrets/a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		next := issue(t, user)
		inv.say().Engage(member(t, "a", next.Kubeconfig()))
		eventually(t, "the new token is in force", func() bool {
			config, err := f.RESTConfigFor(t.Context(), "secrets/a")
			return err == nil && config.BearerToken == next.Token()
		})
		if err := token.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		token = next
		cm := configMap(t, plane, fmt.Sprint("after-", i))
		eventually(t, "reconciled with the new token", func() bool { return f.saw("secrets/a", cm) > 0 })
	}
	if now, err := f.Get(t.Context(), "secrets/a"); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}

	// A token that does not work leaves the old one in force, and says so.
	broken := member(t, "a", token.Kubeconfig())
	broken.Connection.Auth.Token = connection.NewSecret("no-token-of-this-cluster")
	inv.say().Engage(broken)
	eventually(t, "the rejected credential is shown", func() bool {
		return f.is("secrets/a", backends.Degraded, backends.ReasonCredentialRejected)
	})
	cm := configMap(t, plane, "after-all")
	eventually(t, "reconciled with the old token", func() bool { return f.saw("secrets/a", cm) > 0 })
	if s := f.status("secrets/a"); strings.Contains(fmt.Sprintf("%+v", s), broken.Connection.Auth.Token.Reveal()) {
		t.Error("the status shows a token")
	}
}

// Another cluster under the same name replaces the old one, and Get answers throughout.
func TestAnotherClusterReplaces(t *testing.T) {
	one, two := planes.Get(t, controlplane.Options{Name: "one"}), planes.Get(t, controlplane.Options{Name: "good-0"})
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "secrets")
	inv.say().Engage(member(t, "a", one.Kubeconfig()))
	eventually(t, "engaged", func() bool { return f.is("secrets/a", backends.Engaged, backends.ReasonReady) })
	first, err := f.Get(t.Context(), "secrets/a")
	if err != nil {
		t.Fatal(err)
	}
	inv.say().Engage(member(t, "a", two.Kubeconfig()))
	eventually(t, "replaced", func() bool {
		now, err := f.Get(t.Context(), "secrets/a")
		if err != nil {
			t.Fatalf("the name went without a cluster: %v", err)
		}
		return now != first
	})
	eventually(t, "its identity is shown", func() bool { return f.status("secrets/a").UID == two.UID() })
	cm := configMap(t, two, "new")
	eventually(t, "reconciled in the new cluster", func() bool { return f.saw("secrets/a", cm) > 0 })
}

// A member that stops answering is disengaged after enough probes, and engaged again when it is back.
func TestLostAndBack(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "good-1"})
	f := newFleet(t, aggregate.Options{ProbeInterval: 200 * time.Millisecond, ProbeTimeout: 200 * time.Millisecond, ProbeFailures: 3,
		RetryMax: time.Second, ConnectTimeout: 2 * time.Second, DrainTimeout: time.Second})
	inv := started(t, f, "secrets")
	inv.say().Engage(member(t, "a", plane.Kubeconfig()))
	eventually(t, "engaged", func() bool { return f.is("secrets/a", backends.Engaged, backends.ReasonReady) })
	if err := plane.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	defer func() {
		if !resumed {
			_ = plane.Resume()
		}
	}()
	eventually(t, "degraded", func() bool { return f.is("secrets/a", backends.Degraded, backends.ReasonProbeFailed) })
	eventually(t, "disconnected", func() bool { return f.status("secrets/a").State == backends.Disconnected })
	if _, err := f.Get(t.Context(), "secrets/a"); !errors.Is(err, backends.ErrNotEngaged) {
		t.Errorf("Get while disconnected: %v, want ErrNotEngaged", err)
	}
	if err := plane.Resume(); err != nil {
		t.Fatal(err)
	}
	resumed = true
	eventually(t, "engaged again", func() bool { return f.is("secrets/a", backends.Engaged, backends.ReasonReady) })
	cm := configMap(t, plane, "back")
	eventually(t, "reconciled again", func() bool { return f.saw("secrets/a", cm) > 0 })
}

// What a restarted backend has not reported by the time it has synced is disengaged, and not before.
func TestBackendCrash(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "secrets")
	for _, n := range []string{"a", "b"} {
		inv.say().Engage(member(t, n, plane.Kubeconfig()))
	}
	inv.say().Synced()
	eventually(t, "both engaged", func() bool {
		return f.is("secrets/a", backends.Engaged, backends.ReasonReady) && f.is("secrets/b", backends.Engaged, backends.ReasonReady)
	})
	a, err := f.Get(t.Context(), "secrets/a")
	if err != nil {
		t.Fatal(err)
	}
	old := inv.say()
	inv.fail <- errors.New("the inventory broke")
	eventually(t, "the failure is shown", func() bool {
		return f.Backends()[0].Health == backends.Health{Reason: backends.ReasonBackendFailed, Message: "the inventory broke"}
	})
	old.Disengage("a", backends.ReasonDeleted) // a late word of the run that has ended counts for nothing
	<-inv.running
	inv.say().Engage(member(t, "a", plane.Kubeconfig()))
	if !f.is("secrets/b", backends.Engaged, backends.ReasonReady) {
		t.Error("a member was disengaged before the new run had synced")
	}
	inv.say().Synced()
	eventually(t, "the member that is no longer listed is gone", func() bool { return f.status("secrets/b").Name == "" })
	if now, err := f.Get(t.Context(), "secrets/a"); err != nil || now != a {
		t.Errorf("the member that is listed still was engaged anew (%v)", err)
	}
	if h := f.Backends()[0].Health; h != (backends.Health{}) {
		t.Errorf("health after all is well again: %+v", h)
	}
}

func TestAddAndRemoveBackends(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	f := newFleet(t, aggregate.Options{})
	if err := f.Add("Not_A_Label", newInventory(), aggregate.BackendOptions{Prefix: "a/b"}); err == nil ||
		!strings.Contains(err.Error(), "Not_A_Label") || !strings.Contains(err.Error(), "a/b") {
		t.Errorf("both bad names are to be reported, got: %v", err)
	}
	for range 5 {
		inv := started(t, f, "secrets")
		if err := f.Add("secrets", newInventory(), aggregate.BackendOptions{}); !errors.Is(err, aggregate.ErrBackendExists) {
			t.Errorf("second backend of the name: %v, want ErrBackendExists", err)
		}
		inv.say().Engage(member(t, "a", plane.Kubeconfig()))
		eventually(t, "engaged", func() bool { return f.is("secrets/a", backends.Engaged, backends.ReasonReady) })
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
	f := newFleet(t, aggregate.Options{})
	inv := started(t, f, "secrets")
	inv.say().Hold("a", backends.Hold{Reason: backends.ReasonSecretNotFound})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	step := 0
	for c := range f.Subscribe(ctx) {
		switch {
		case step == 0 && c.State == backends.Pending:
			inv.say().Engage(member(t, "a", plane.Kubeconfig()))
			step++
		case step == 1 && c.State == backends.Engaged:
			inv.say().Disengage("a", backends.ReasonDeleted)
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
	token := issue(t, newUser(t, plane, controlplane.Everything()...))
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
	f := newFleet(t, aggregate.Options{PluginTimeout: time.Second, RetryMax: time.Second})
	inv := started(t, f, "x")
	with := func(name, command string) backends.Cluster {
		c := member(t, name, token.Kubeconfig())
		c.Connection.Auth = connection.Auth{Exec: plugin(command)}
		return c
	}
	inv.say().Engage(with("hangs", hangs))
	inv.say().Engage(with("works", works))
	eventually(t, "the one that works is engaged", func() bool { return f.is("x/works", backends.Engaged, backends.ReasonReady) })
	if s := f.status("x/works"); !strings.HasPrefix(s.User, "system:serviceaccount:") {
		t.Errorf("the user is %q", s.User)
	}
	eventually(t, "the one that hangs is shown", func() bool { return f.is("x/hangs", backends.Connecting, backends.ReasonPluginFailed) })
	if s := fmt.Sprintf("%+v", f.Clusters()); strings.Contains(s, token.Token()) {
		t.Error("the status shows a token")
	}
}
