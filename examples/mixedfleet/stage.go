package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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

	"golang.org/x/sync/errgroup"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// The members. Three are in the fleet from the start, the fourth joins it during the tour.
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

// startStage starts the hub and the members at once, and fills the members with something to work on.
// What was started when it fails is stopped again.
func startStage(ctx context.Context, progress io.Writer) (*stage, error) {
	s := &stage{members: map[string]*member{}}
	// The first build, if there is one, is awaited here and not in five goroutines.
	if _, err := controlplane.Find(ctx, progress); err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		crds := []controlplane.CRDs{controlplane.ClusterAPI, controlplane.ClusterInventory}
		s.hub, err = controlplane.Start(groupCtx, controlplane.Options{Name: "hub", CRDs: crds, Progress: progress})
		if err == nil {
			s.client, err = clientFor(s.hub.Config())
		}
		return err
	})
	for _, name := range []string{berlin, osaka, lima, nairobi} {
		m := &member{name: name}
		s.members[name] = m
		group.Go(func() error { return m.start(groupCtx, progress) })
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
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

// labelled reports whether the controller has labelled a ConfigMap: what the member itself says.
func (m *member) labelled(ctx context.Context, name string) (bool, error) {
	var cm corev1.ConfigMap
	if err := m.client.Get(ctx, client.ObjectKey{Namespace: workNamespace, Name: name}, &cm); err != nil {
		return false, fmt.Errorf("get ConfigMap in %s: %w", m.name, err)
	}
	return cm.Labels[seenLabel] != "", nil
}

// stop stops everything. It does not wait for anybody to finish anything.
func (s *stage) stop() error {
	planes := []*controlplane.ControlPlane{s.hub}
	for _, m := range s.members {
		planes = append(planes, m.plane)
	}
	return controlplane.StopAll(planes...)
}

// clientFor returns a client without a cache, for all kinds that the demonstration writes.
func clientFor(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(inventoryv1alpha1.AddToScheme(scheme))
	return client.New(config, client.Options{Scheme: scheme})
}
