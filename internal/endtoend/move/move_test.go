package move_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

var clusters = flag.Int("clusters", 3, "how many real clusters are moved")

// member is a cluster that both inventories list, by addresses and users of their own.
type member struct {
	name         string // the Secret's, the profile's
	plane        *controlplane.ControlPlane
	admin        client.Client
	here, there  *faultproxy.TLSProxy // what the kubeconfig Secret and the ClusterProfile lead to
	before       cluster.Cluster
	objects      []string // every ConfigMap that was created
	mu           sync.Mutex
	writesFailed []error
}

func (m *member) public(namespace string) string { return "prod/" + namespace + "/" + m.name }

// TestMove moves clusters from kubeconfig Secrets to ClusterProfiles, with a controller that reconciles and writes all the while: the
// second inventory is added behind the first, the order is reversed, the Secrets are deleted, and the first inventory is removed. Nobody
// feels it: not a list, not a cancelled engagement, not a reconcile too many, not a refused write.
//
// One more cluster is listed by a profile that leads to another cluster. It does not move, and is replaced only when that is asked for.
func TestMove(t *testing.T) {
	hub := planes.Get(t, controlplane.Options{Name: "hub", CRDs: []controlplane.CRDs{controlplane.ClusterInventory}})
	hubClient := endtoend.AdminClient(t, hub)
	namespace := endtoend.Namespace(t, hubClient)
	var members []*member
	for i := range *clusters + 1 {
		members = append(members, newMember(t, fmt.Sprintf("m%02d", i)))
	}
	stray := members[*clusters] // its profile leads to the first member
	members = members[:*clusters]

	engagements := &engagements{}
	f := endtoend.Start(t, aggregate.Options{}, endtoend.Before(func(f *endtoend.Fleet) {
		if err := f.Manager.Add(engagements); err != nil {
			t.Fatal(err)
		}
	}))

	// First, the clusters are engaged from kubeconfig Secrets.
	for _, m := range append(members, stray) {
		createSecret(t, hubClient, namespace, m.name, map[string]string{kubeconfig.DefaultKey: string(m.kubeconfig(t, m.here))},
			map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"})
	}
	secrets, err := kubeconfig.New(kubeconfig.Options{Hub: hub.Config(), Namespaces: []string{namespace}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Add("secrets", secrets, aggregate.BackendOptions{Prefix: "prod"}); err != nil {
		t.Fatal(err)
	}
	for _, m := range append(members, stray) {
		endtoend.Eventually(t, m.name+" is engaged", func() bool { return f.Engaged(m.public(namespace)) })
		if m.before, err = f.Get(t.Context(), endtoend.Name(m.public(namespace))); err != nil {
			t.Fatal(err)
		}
		m.create(t)
	}
	for _, m := range members {
		m.seen(t, f, namespace)
		m.here.Counter.Reset()
	}
	engaged := engagements.count()

	writersCtx, stopWriters := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stopWriters()
	for _, m := range members {
		writers.Go(func() { m.write(writersCtx, f, namespace) })
	}

	// The second inventory comes, behind the first one.
	stray.there = endtoend.Counting(t, members[0].plane)
	for _, m := range append(members, stray) {
		access := m.kubeconfig(t, m.there)
		if m == stray {
			access = members[0].kubeconfig(t, m.there)
		}
		endtoend.Profile(t, hubClient, namespace, m.name)
		createSecret(t, hubClient, namespace, m.name+"-access", map[string]string{"Config": string(access)},
			map[string]string{"x-k8s.io/cluster-inventory-consumer": "tributary", "x-k8s.io/cluster-profile": m.name})
	}
	newProfiles := func() backends.Backend {
		profiles, err := inventory.New(inventory.Options{Hub: hub.Config(), Namespaces: []string{namespace}, Consumer: "tributary"})
		if err != nil {
			t.Fatal(err)
		}
		return profiles
	}
	if err := f.Add("profiles", newProfiles(), aggregate.BackendOptions{Prefix: "prod"}); err != nil {
		t.Fatal(err)
	}
	want := aggregate.Migration{From: "secrets", To: "profiles"}
	for _, m := range members {
		name := endtoend.Name(m.public(namespace))
		want.Moves = append(want.Moves, aggregate.Move{Name: name, NewName: name, Match: aggregate.MatchName, Outcome: aggregate.OutcomeReady})
	}
	strayName := endtoend.Name(stray.public(namespace))
	want.Moves = append(want.Moves, aggregate.Move{Name: strayName, NewName: strayName, Match: aggregate.MatchName, Outcome: aggregate.OutcomeNotReady,
		Reason: backends.ReasonIdentityDiffers, Message: fmt.Sprintf("backend profiles leads to another cluster (kube-system UID %s)", members[0].plane.UID())})
	var report aggregate.Migration
	endtoend.Eventually(t, "the report knows every cluster", func() bool {
		if report, err = f.Migration("secrets", "profiles"); err != nil {
			t.Fatal(err)
		}
		return report.Count(aggregate.OutcomeReady) == *clusters && cmp.Equal(want, report)
	})
	t.Logf("%d of %d are ready", report.Count(aggregate.OutcomeReady), len(report.Moves))
	createAll(t, members)

	// The order is reversed, while objects are created.
	began := time.Now()
	if err := f.Arrange("prod", "profiles", "secrets"); err != nil {
		t.Fatal(err)
	}
	createAll(t, members)
	for _, m := range members {
		endtoend.Eventually(t, m.name+" has moved", func() bool {
			return f.Status(m.public(namespace)).Backend == "profiles" && f.Engaged(m.public(namespace))
		})
	}
	t.Logf("%d clusters moved in %v", *clusters, time.Since(began))
	createAll(t, members)

	// The Secrets are deleted, and the inventory that listed them is removed.
	for _, m := range members {
		if err := hubClient.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name}}); err != nil {
			t.Fatal(err)
		}
	}
	createAll(t, members)
	if s := f.Status(stray.public(namespace)); s.Backend != "secrets" || s.State != backends.Engaged || s.Reason != backends.ReasonIdentityDiffers {
		t.Errorf("what leads elsewhere is to stay and be reported: %+v", s)
	}
	if now, err := f.Get(t.Context(), strayName); err != nil || now != stray.before {
		t.Errorf("what leads elsewhere was engaged anew (%v)", err)
	}
	// What leads elsewhere is replaced by configuration.
	if err := f.Update("profiles", newProfiles(), aggregate.BackendOptions{Prefix: "prod", Replace: true}); err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "replaced", func() bool {
		s := f.Status(stray.public(namespace))
		return s.Backend == "profiles" && s.State == backends.Engaged && s.UID == members[0].plane.UID()
	})
	ctx, cancel := context.WithTimeout(t.Context(), endtoend.Patience)
	defer cancel()
	if err := f.Remove(ctx, "secrets"); err != nil {
		t.Fatal(err)
	}
	createAll(t, members)

	for _, m := range members {
		m.seen(t, f, namespace)
	}
	stopWriters()
	writers.Wait()
	for _, m := range members {
		if now, err := f.Get(t.Context(), endtoend.Name(m.public(namespace))); err != nil || now != m.before {
			t.Errorf("%s was engaged anew (%v)", m.name, err)
		}
		if n := m.here.Counter.Relists() + m.there.Counter.Relists(); n > 0 {
			t.Errorf("%s: %d lists", m.name, n)
		}
		for _, object := range m.objects {
			if n := f.Saw(m.public(namespace), object); n != 1 {
				t.Errorf("%s: %s was reconciled %d times", m.name, object, n)
			}
		}
		for _, err := range m.writesFailed {
			t.Errorf("%s: a write failed: %v", m.name, err)
		}
		if writes := m.there.Counter.Count(func(r faultproxy.Request) bool { return r.Method == http.MethodPatch }); writes == 0 {
			t.Errorf("%s: nothing was written through the new connection", m.name)
		}
	}
	for name, n := range engagements.cancelled() {
		if name != strayName {
			t.Errorf("%s: %d engagements were cancelled", name, n)
		}
	}
	if n := engagements.count() - engaged; n != 1 { // the one that was replaced
		t.Errorf("%d more engagements, want 1", n)
	}
}

// newMember starts a cluster, and what leads to it.
func newMember(t *testing.T, name string) *member {
	t.Helper()
	m := &member{name: name, plane: planes.Get(t, controlplane.Options{Name: name})}
	m.admin = endtoend.AdminClient(t, m.plane)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "written"}}
	if err := m.admin.Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	m.here, m.there = endtoend.Counting(t, m.plane), endtoend.Counting(t, m.plane)
	return m
}

// kubeconfig returns a kubeconfig of a new user, by way of a proxy.
func (m *member) kubeconfig(t *testing.T, by *faultproxy.TLSProxy) []byte {
	t.Helper()
	token := endtoend.Issue(t, endtoend.NewUser(t, m.plane, controlplane.Everything()...))
	return endtoend.Kubeconfig(t, by.URL(), by.CAData(), token.Token())
}

// create creates a ConfigMap.
func (m *member) create(t *testing.T) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: endtoend.Unique("moved")}}
	if err := m.admin.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	m.objects = append(m.objects, "default/"+cm.Name)
}

func createAll(t *testing.T, members []*member) {
	t.Helper()
	for _, m := range members {
		m.create(t)
	}
}

// seen waits until everything that was created has been reconciled.
func (m *member) seen(t *testing.T, f *endtoend.Fleet, namespace string) {
	t.Helper()
	for _, object := range m.objects {
		endtoend.Eventually(t, m.name+": "+object+" is reconciled", func() bool { return f.Saw(m.public(namespace), object) > 0 })
	}
}

// write patches an object of the cluster over and over, through the engaged cluster's own client, until ctx ends.
func (m *member) write(ctx context.Context, f *endtoend.Fleet, namespace string) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "written"}}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond): // the load is a steady one
		}
		cl, err := f.Manager.GetCluster(ctx, endtoend.Name(m.public(namespace)))
		if err == nil {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"written":"%d"}}}`, i)
			err = cl.GetClient().Patch(ctx, account.DeepCopy(), client.RawPatch("application/merge-patch+json", patch))
		}
		if err != nil && ctx.Err() == nil {
			m.mu.Lock()
			m.writesFailed = append(m.writesFailed, err)
			m.mu.Unlock()
		}
	}
}

// engagements remembers the contexts that clusters were engaged with.
type engagements struct {
	mu   sync.Mutex
	list []engagement
}

type engagement struct {
	name multicluster.ClusterName
	ctx  context.Context
}

// Start implements manager.Runnable.
func (e *engagements) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage implements multicluster.Aware.
func (e *engagements) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, engagement{name, ctx})
	return nil
}

func (e *engagements) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.list)
}

// cancelled returns how many engagements of each name have ended.
func (e *engagements) cancelled() map[multicluster.ClusterName]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended := map[multicluster.ClusterName]int{}
	for _, en := range e.list {
		if en.ctx.Err() != nil {
			ended[en.name]++
		}
	}
	return ended
}

func createSecret(t *testing.T, c client.Client, namespace, name string, data, labels map[string]string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, StringData: data}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}
