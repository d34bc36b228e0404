package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"golang.org/x/sync/errgroup"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// The members. Three are in the fleet from the start; the fourth is started meanwhile, and joins during the tour.
const (
	berlin  = "berlin"
	osaka   = "osaka"
	lima    = "lima"
	nairobi = "nairobi"
)

// meals are the ConfigMaps that every member has from the start.
var meals = [...]string{"breakfast", "lunch", "dinner"}

// stage is the hub and the members: real control planes on this machine. It plays everybody but the controller: the
// administrators of the members, and the people and programs that write inventories.
type stage struct {
	hub     *controlplane.ControlPlane
	client  client.Client // of the hub
	members map[string]*member

	// cancel ends what is still being started, and late is closed when the fourth member has started or failed.
	cancel  context.CancelFunc
	late    chan struct{}
	lateErr error // valid once late is closed
}

// member is one member cluster.
type member struct {
	name   string
	plane  *controlplane.ControlPlane
	client client.Client      // the administrator's
	user   *controlplane.User // whom the controller acts as
}

// controllerRules are all that the controller needs in a member: what it works on, and the namespace by whose UID
// a cluster is told from others.
func controllerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}},
	}
}

// startStage starts the hub and three members at once, and fills the members with something to work on. The fourth
// member follows by itself; see [stage.awaitLate]. What was started when it fails is stopped again.
func startStage(ctx context.Context, progress io.Writer) (*stage, error) {
	began := time.Now()
	// The first build, if there is one, is awaited here and not in each start.
	if _, err := controlplane.Find(ctx, progress); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stage{members: map[string]*member{}, cancel: cancel, late: make(chan struct{})}
	for _, name := range []string{berlin, osaka, lima, nairobi} {
		s.members[name] = &member{name: name}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		crds := []controlplane.CRDs{controlplane.ClusterAPI, controlplane.ClusterInventory}
		s.hub, err = controlplane.Start(groupCtx, controlplane.Options{Name: "hub", CRDs: crds, Progress: progress})
		if err != nil {
			return err
		}
		fmt.Fprintf(progress, "  hub is up after %s\n", since(began))
		s.client, err = clientFor(s.hub.Config())
		return err
	})
	for _, name := range []string{berlin, osaka, lima} {
		group.Go(func() error {
			if err := s.members[name].start(groupCtx, progress); err != nil {
				return err
			}
			fmt.Fprintf(progress, "  %s is up after %s\n", name, since(began))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		close(s.late)
		return nil, errors.Join(err, s.stop())
	}
	go func() {
		defer close(s.late)
		s.lateErr = s.members[nairobi].start(ctx, progress)
	}()
	return s, nil
}

// awaitLate waits until the fourth member has started.
func (s *stage) awaitLate(ctx context.Context) error {
	select {
	case <-s.late:
		return s.lateErr
	case <-ctx.Done():
		return fmt.Errorf("wait for start of %s: %w", nairobi, context.Cause(ctx))
	}
}

func (m *member) start(ctx context.Context, progress io.Writer) (err error) {
	if m.plane, err = controlplane.Start(ctx, controlplane.Options{Name: m.name, Progress: progress}); err != nil {
		return err
	}
	if m.client, err = clientFor(m.plane.Config()); err != nil {
		return err
	}
	if m.user, err = m.plane.NewUser(ctx, "mixedfleet", controllerRules()...); err != nil {
		return err
	}
	if err := m.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workNamespace}}); err != nil {
		return fmt.Errorf("create namespace in %s: %w", m.name, err)
	}
	for _, name := range meals {
		if err := m.create(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// create creates a ConfigMap for the controller to work on.
func (m *member) create(ctx context.Context, name string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: workNamespace, Name: name}}
	if err := m.client.Create(ctx, cm); err != nil {
		return fmt.Errorf("create ConfigMap in %s: %w", m.name, err)
	}
	return nil
}

// labelled reports whether the controller has labelled a ConfigMap through the given name of the cluster: what the
// member itself says.
func (m *member) labelled(ctx context.Context, as multicluster.ClusterName, name string) (bool, error) {
	var cm corev1.ConfigMap
	if err := m.client.Get(ctx, client.ObjectKey{Namespace: workNamespace, Name: name}, &cm); err != nil {
		return false, fmt.Errorf("get ConfigMap in %s: %w", m.name, err)
	}
	return cm.Labels[seenLabel(as)] != "", nil
}

// stop stops everything, at once.
func (s *stage) stop() error {
	s.cancel()
	<-s.late
	planes := []*controlplane.ControlPlane{s.hub}
	for _, m := range s.members {
		planes = append(planes, m.plane)
	}
	return controlplane.StopAll(planes...)
}

// kubeconfigFile writes an administrator's kubeconfig to a file that goes away with the control plane, and returns its path.
func kubeconfigFile(plane *controlplane.ControlPlane) (string, error) {
	path := filepath.Join(plane.Dir(), "kubeconfig")
	if err := os.WriteFile(path, plane.Kubeconfig(), 0o600); err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", plane.Name(), err)
	}
	return path, nil
}

// clientFor returns a client without a cache, for all kinds that the demonstration writes.
func clientFor(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(inventoryv1alpha1.AddToScheme(scheme))
	return client.New(config, client.Options{Scheme: scheme})
}
