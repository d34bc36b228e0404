package hub

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

const clustersCRD = "clusters.cluster.x-k8s.io"

// lister is the simplest backend: it holds a member for every object, with the object's version and labels.
type lister struct {
	t      *testing.T
	config *rest.Config
	opts   SourceOptions[member]
	adjust func(*Client)
}

type member struct {
	Reference backends.ObjectReference
	Labels    map[string]string
}

func (l lister) Run(ctx context.Context, engager backends.Engager) error {
	client, err := Connect(l.config)
	if err != nil {
		return err
	}
	client.missingInterval, client.versionInterval = 100*time.Millisecond, 100*time.Millisecond
	if l.adjust != nil {
		l.adjust(client)
	}
	opts := l.opts
	opts.View = func(u *unstructured.Unstructured) (member, bool) {
		if u.GetManagedFields() != nil {
			l.t.Errorf("%s still has its managed fields", u.GetName())
		}
		return member{Reference(u), u.GetLabels()}, true
	}
	key := func(m member) string { return m.Reference.Namespace + "/" + m.Reference.Name }
	opts.Members = func(m member) []string { return []string{key(m)} }
	source := NewSource(opts)
	loop := Loop{Sources: []Watcher{source}, Engager: engager, Reconcile: func(_ context.Context, name string) {
		m, ok := source.Get(name)
		if !ok {
			engager.Disengage(name, backends.ReasonDeleted)
			return
		}
		engager.Hold(name, backends.Hold{Reason: "Listed", Source: m.Reference, Info: backends.Info{Labels: m.Labels}})
	}}
	loop.Run(ctx, client)
	return nil
}

func clusterKind(versions ...string) Kind {
	return Kind{Group: "cluster.x-k8s.io", Resource: "clusters", Versions: versions}
}

func newCluster(namespace, name string) *clusterv1.Cluster {
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DockerCluster", Name: name}},
	}
}

func withClusters(t *testing.T) *hubtest.Hub {
	return hubtest.New(t, planes.Get(t, controlplane.Options{
		Name: "hub", CRDs: []controlplane.CRDs{controlplane.ClusterAPI}}))
}

func waitListed(t *testing.T, r *backendtest.Running, name, version string) {
	t.Helper()
	r.Wait(t, name+" is listed at "+version, func(f backendtest.Fleet) bool {
		held := f.Members[name].Held
		return held != nil && strings.HasSuffix(held.Source.APIVersion, version)
	})
}

// A hub that gets its CRD later is waited for, and one that loses it says what is deleted and then waits again.
func TestMissingCRD(t *testing.T) {
	hub := hubtest.New(t, planes.Get(t, controlplane.Options{Name: "bare"}))
	namespace := hub.Namespace(t, nil)
	r := backendtest.Start(t, lister{t: t, config: hub.Config(), opts: SourceOptions[member]{Kind: clusterKind("v1beta2")}})

	r.WaitHealth(t, backends.ReasonKindNotServed)
	if n := r.Fleet().Synced; n > 0 {
		t.Error("synced without its kind")
	}
	if err := hub.InstallCRDs(t.Context(), controlplane.ClusterAPI); err != nil {
		t.Fatal(err)
	}
	r.WaitSynced(t)
	r.WaitHealth(t, "")
	hub.Put(t, newCluster(namespace, "a"))
	waitListed(t, r, namespace+"/a", "v1beta2")

	if err := hub.DeleteCRDs(t.Context(), controlplane.ClusterAPI); err != nil {
		t.Fatal(err)
	}
	r.WaitDisengaged(t, namespace+"/a")
	r.WaitHealth(t, backends.ReasonKindNotServed)

	if err := hub.InstallCRDs(t.Context(), controlplane.ClusterAPI); err != nil {
		t.Fatal(err)
	}
	r.WaitHealth(t, "")
	hub.Put(t, newCluster(namespace, "a"))
	waitListed(t, r, namespace+"/a", "v1beta2")
	if err := hub.DeleteCRDs(t.Context(), controlplane.ClusterAPI); err != nil {
		t.Fatal(err)
	}
}

// While the hub does not serve the only version that is understood, what is known stays.
func TestUnservedVersionKeepsObjects(t *testing.T) {
	hub := withClusters(t)
	namespace := hub.Namespace(t, nil)
	hub.Put(t, newCluster(namespace, "a"))
	r := backendtest.Start(t, lister{t: t, config: hub.Config(), opts: SourceOptions[member]{
		Kind: clusterKind("v1beta1"), Namespaces: []string{namespace}}})
	waitListed(t, r, namespace+"/a", "v1beta1")
	r.WaitSynced(t)
	seen := len(r.Calls())
	hub.Serve(t, clustersCRD, "v1beta1", false)
	r.WaitHealth(t, backends.ReasonKindNotServed)
	hub.Serve(t, clustersCRD, "v1beta1", true)
	r.WaitHealth(t, "")
	for _, call := range r.Calls()[seen:] {
		if call.Method != "Report" {
			t.Errorf("%s(%s) was called because of an unserved version", call.Method, call.Name)
		}
	}
}

// The preferred version is used as soon as it is served, and the next one when it is not.
func TestVersionsAreFollowed(t *testing.T) {
	hub := withClusters(t)
	namespace := hub.Namespace(t, nil)
	hub.Put(t, newCluster(namespace, "a"))
	r := backendtest.Start(t, lister{t: t, config: hub.Config(), opts: SourceOptions[member]{
		Kind: clusterKind("v1beta1", "v1beta2"), Namespaces: []string{namespace}}})
	waitListed(t, r, namespace+"/a", "v1beta1")
	hub.Serve(t, clustersCRD, "v1beta1", false)
	waitListed(t, r, namespace+"/a", "v1beta2")
	hub.Serve(t, clustersCRD, "v1beta1", true)
	waitListed(t, r, namespace+"/a", "v1beta1")
	for _, call := range r.Calls() {
		if call.Method == "Disengage" {
			t.Errorf("%s was disengaged because of another version", call.Name)
		}
	}
}

// A namespace that may not be read is reported, and the others are read nevertheless.
func TestForbiddenNamespace(t *testing.T) {
	hub := withClusters(t)
	allowed, forbidden := hub.Namespace(t, nil), hub.Namespace(t, nil)
	hub.Put(t, hubtest.Secret(allowed, "a", nil, nil))
	hub.Put(t, hubtest.Secret(forbidden, "b", nil, nil))
	user, err := hub.NewUser(t.Context(), "reader-of-"+allowed)
	if err != nil {
		t.Fatal(err)
	}
	token, err := user.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	grant := func(namespace string) {
		hub.Put(t, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}}},
		})
		hub.Put(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"},
			Subjects:   []rbacv1.Subject{user.Subject()},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		})
	}
	grant(allowed)
	r := backendtest.Start(t, lister{t: t, config: token.Config(), opts: SourceOptions[member]{
		Kind: Secrets(), Namespaces: []string{allowed, forbidden}}})
	// The rights of the one namespace take effect a moment later, too.
	waitListed(t, r, allowed+"/a", "v1")
	health := r.WaitHealth(t, backends.ReasonHubForbidden)
	r.Wait(t, "only the forbidden namespace is reported", func(f backendtest.Fleet) bool {
		return strings.Contains(f.Health.Message, forbidden) && !strings.Contains(f.Health.Message, "more")
	})
	if f := r.Fleet(); f.Synced > 0 {
		t.Errorf("synced although a namespace is unknown (%s)", health.Message)
	}
	grant(forbidden)
	waitListed(t, r, forbidden+"/b", "v1")
	r.WaitSynced(t)
	r.WaitHealth(t, "")
}

// Selectors are the server's: an object that stops matching is gone.
func TestSelectors(t *testing.T) {
	hub := withClusters(t)
	namespace, other := hub.Namespace(t, nil), hub.Namespace(t, nil)
	labels := map[string]string{"wanted": "true"}
	for _, name := range []string{"a", "b"} {
		hub.Put(t, hubtest.Secret(namespace, name, labels, nil))
	}
	hub.Put(t, hubtest.Secret(namespace, "unlabelled", nil, nil))
	hub.Put(t, hubtest.Secret(other, "elsewhere", labels, nil))
	r := backendtest.Start(t, lister{t: t, config: hub.Config(), opts: SourceOptions[member]{
		Kind: Secrets(), Namespaces: []string{namespace}, LabelSelector: "wanted=true", FieldSelector: "metadata.name!=b"}})
	r.WaitSynced(t)
	var names []string
	for name := range r.Fleet().Members {
		names = append(names, name)
	}
	if want := []string{namespace + "/a"}; !slices.Equal(names, want) {
		t.Errorf("listed %v, want %v", names, want)
	}
	hub.Label(t, hubtest.Secret(namespace, "a", nil, nil), map[string]string{"wanted": ""})
	r.WaitDisengaged(t, namespace+"/a")
	hub.Label(t, hubtest.Secret(namespace, "a", nil, nil), labels)
	waitListed(t, r, namespace+"/a", "v1")
}

// A hub that accepts connections and never answers is noticed, delays nobody's end, and is read when it is back.
func TestHubThatHangs(t *testing.T) {
	hub := hubtest.New(t, planes.Get(t, controlplane.Options{Name: "bare"}))
	namespace := hub.Namespace(t, nil)
	hub.Put(t, hubtest.Secret(namespace, "a", nil, nil))
	backend := lister{t: t, config: hub.Config(), opts: SourceOptions[member]{Kind: Secrets(), Namespaces: []string{namespace}},
		adjust: func(c *Client) { c.timeout = 500 * time.Millisecond }}
	if err := hub.Pause(); err != nil {
		t.Fatal(err)
	}
	first := backendtest.Start(t, backend)
	health := first.WaitHealth(t, backends.ReasonHubUnreachable)
	if !strings.Contains(health.Message, "no answer in time") || !strings.Contains(health.Message, namespace) {
		t.Errorf("unclear message: %s", health.Message)
	}
	began := time.Now()
	first.Stop(t)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Run took %s to return while the hub hung", took)
	}
	second := backendtest.Start(t, backend)
	second.WaitHealth(t, backends.ReasonHubUnreachable)
	if err := hub.Resume(); err != nil {
		t.Fatal(err)
	}
	second.WaitSynced(t)
	waitListed(t, second, namespace+"/a", "v1")
	second.WaitHealth(t, "")
}
