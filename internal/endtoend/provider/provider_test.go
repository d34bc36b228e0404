package provider_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcrclusters "sigs.k8s.io/multicluster-runtime/providers/clusters"
	mcrkubeconfig "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
	mcrnamespace "sigs.k8s.io/multicluster-runtime/providers/namespace"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/provider"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

func plane(t *testing.T, name string) *controlplane.ControlPlane {
	return planes.Get(t, controlplane.Options{Name: name})
}

// add adds a provider to a fleet as a backend of the name.
func add(t *testing.T, f *endtoend.Fleet, name string, opts provider.Options) {
	t.Helper()
	backend, err := provider.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Add(name, backend, aggregate.BackendOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reconciles makes sure that a new object in a cluster is reconciled under the name.
func reconciles(t *testing.T, f *endtoend.Fleet, name string, in *controlplane.ControlPlane) {
	t.Helper()
	key := endtoend.ConfigMap(t, in, "object")
	endtoend.Eventually(t, name+" is reconciled", func() bool { return f.Saw(name, key) > 0 })
	endtoend.Eventually(t, name+" is ready", func() bool { return f.Engaged(name) })
}

func gone(t *testing.T, f *endtoend.Fleet, name string) {
	t.Helper()
	endtoend.Eventually(t, name+" is gone", func() bool { return f.Status(name).Name == "" })
	if _, err := f.Get(t.Context(), endtoend.Name(name)); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("Get of what is gone: %v", err)
	}
}

// Clusters of multicluster-runtime's clusters provider come and go. None comes back under its name here: the goroutine that ran the
// first one removes whatever has its name by the time it ends (as of v0.24.1).
func TestClusters(t *testing.T) {
	member := plane(t, "member")
	f := endtoend.Start(t, aggregate.Options{})
	theirs := mcrclusters.New()
	add(t, f, "theirs", provider.Options{Provider: theirs})
	for _, name := range []string{"one", "two"} {
		public := "theirs/" + name
		cl, err := cluster.New(member.Config(), func(o *cluster.Options) { o.Logger = logr.Discard() })
		if err != nil {
			t.Fatal(err)
		}
		if err := theirs.Add(t.Context(), multicluster.ClusterName(name), cl); err != nil {
			t.Fatal(err)
		}
		reconciles(t, f, public, member)
		if s := f.Status(public); s.Version != "v1.36.3" || s.User == "" || s.Backend != "theirs" {
			t.Errorf("%+v", s)
		}
		config, err := f.RESTConfigFor(t.Context(), endtoend.Name(public))
		if err != nil || config.Host != member.Config().Host {
			t.Errorf("RESTConfigFor: %v, %v", config, err)
		}
		theirs.Remove(multicluster.ClusterName(name))
		gone(t, f, public)
	}
}

// Namespaces of one cluster, each a cluster of its own, by multicluster-runtime's namespace provider.
func TestNamespaces(t *testing.T) {
	hub := plane(t, "hub")
	admin := endtoend.AdminClient(t, hub)
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithHub(hub))
	add(t, f, "namespaces", provider.Options{Provider: mcrnamespace.New(f.Manager.GetLocalManager())})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	name := "namespaces/" + ns.Name
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "mine"}}
	if err := admin.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "what is in the namespace is reconciled", func() bool { return f.Saw(name, "default/mine") > 0 })
	if !f.Engaged(name) {
		endtoend.Eventually(t, "ready", func() bool { return f.Engaged(name) })
	}
	if f.Saw("namespaces/default", "default/mine") > 0 {
		t.Error("reconciled in another namespace")
	}
	if err := admin.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil // there is no controller here that would
	clients, err := kubernetes.NewForConfig(hub.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Namespaces().Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	gone(t, f, name)
}

// Clusters of multicluster-runtime's kubeconfig provider, which engages them through a manager.
func TestKubeconfigs(t *testing.T) {
	hub, member := plane(t, "hub"), plane(t, "member")
	admin := endtoend.AdminClient(t, hub)
	namespace := endtoend.Namespace(t, admin)
	f := endtoend.Start(t, aggregate.Options{}, endtoend.WithHub(hub), endtoend.WithManager(func(o *mcmanager.Options) {
		o.Controller.SkipNameValidation = new(true) // theirs has a fixed name
	}))
	theirs := mcrkubeconfig.New(mcrkubeconfig.Options{Namespace: namespace})
	add(t, f, "kubeconfigs", provider.Options{Run: func(ctx context.Context, aware multicluster.Aware) error {
		if err := theirs.SetupWithManager(ctx, provider.Manager(f.Manager, aware)); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}})
	for range 2 {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one", Labels: map[string]string{mcrkubeconfig.DefaultKubeconfigSecretLabel: "true"}},
			Data:       map[string][]byte{mcrkubeconfig.DefaultKubeconfigSecretKey: member.Kubeconfig()},
		}
		if err := admin.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		reconciles(t, f, "kubeconfigs/one", member)
		if err := admin.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		gone(t, f, "kubeconfigs/one")
	}
}

// A provider that fails, or whose cluster does not answer, does no harm to the clusters of another backend, and its own are gone at
// once: nobody runs them any longer.
func TestProviderFails(t *testing.T) {
	member := plane(t, "member")
	f := endtoend.Start(t, aggregate.Options{})
	other := f.Declare(t, "other")
	server := endtoend.Fakes(t)
	fake := server.Cluster("fine")
	fake.AllowToken("token", "user")
	other.Say().Engage(endtoend.FakeMember(fake, server.Addr(), server, "fine", "token"))
	endtoend.Eventually(t, "the other backend's is engaged", func() bool { return f.Engaged("other/fine") })

	fail := make(chan error)
	add(t, f, "fails", provider.Options{Run: func(ctx context.Context, aware multicluster.Aware) error {
		cl, err := cluster.New(member.Config(), func(o *cluster.Options) { o.Logger = logr.Discard() })
		if err != nil {
			return err
		}
		life, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- cl.Start(life) }()
		if err := aware.Engage(life, "one", cl); err != nil {
			return err
		}
		select {
		case err = <-fail:
		case <-ctx.Done():
		}
		cancel()
		<-ended
		return err
	}})
	for range 2 {
		reconciles(t, f, "fails/one", member)
		fail <- errors.New("theirs broke")
		endtoend.Eventually(t, "the failure is shown", func() bool {
			return f.Backends()[1].Health == backends.Health{Reason: backends.ReasonBackendFailed, Message: "theirs broke"}
		})
		gone(t, f, "fails/one")
		key := endtoend.PutConfigMap(t, fake, "fine")
		endtoend.Eventually(t, "the other backend's goes on", func() bool { return f.Saw("other/fine", key) > 0 })
	}
	reconciles(t, f, "fails/one", member)
}
