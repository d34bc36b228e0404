package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tributary-fleet/tributary/aggregate"
)

const (
	// workNamespace is the members' namespace that the controller works in during the demonstration.
	workNamespace = "mixedfleet"
	// labelPrefix and the cluster's name make the label that the controller puts on ConfigMaps; see seenLabel.
	labelPrefix = "mixedfleet.tributary.dev/"
	// writeTimeout bounds one write to a member. A worker that waits for a cluster serves no other meanwhile.
	writeTimeout = 5 * time.Second
)

// seenLabel is the label for one name of a cluster. A cluster that is listed twice has two names, and whoever looks
// at the label knows through which of its connections it was written.
func seenLabel(name multicluster.ClusterName) string {
	return labelPrefix + strings.ReplaceAll(name.String(), aggregate.DefaultSeparator, ".")
}

// configMaps counts the ConfigMaps of every cluster, and labels them. It is an ordinary multicluster-runtime reconciler.
type configMaps struct {
	manager mcmanager.Manager
	tally   *tally
	// readOnly makes it count alone.
	readOnly bool
}

func (c configMaps) setUp() error {
	return mcbuilder.ControllerManagedBy(c.manager).
		Named("configmaps").
		For(&corev1.ConfigMap{}).
		// Several workers, so that one slow cluster occupies not all of them.
		WithOptions(controller.TypedOptions[mcreconcile.Request]{MaxConcurrentReconciles: 8}).
		Complete(c)
}

// Reconcile is called for every ConfigMap of every cluster, whichever inventory lists it.
func (c configMaps) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	// A cluster that is away for a while is an error here, so the request is tried again later. One that has left
	// the fleet is multicluster.ErrClusterNotFound, upon which the builder's wrapper drops the request.
	cl, err := c.manager.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var cm corev1.ConfigMap
	if err := cl.GetClient().Get(ctx, req.NamespacedName, &cm); err != nil {
		if client.IgnoreNotFound(err) == nil {
			c.tally.gone(req.ClusterName, cl, req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	label := seenLabel(req.ClusterName)
	if !c.readOnly && cm.Labels[label] == "" {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		before := cm.DeepCopy()
		if cm.Labels == nil {
			cm.Labels = map[string]string{}
		}
		cm.Labels[label] = "true"
		if err := cl.GetClient().Patch(ctx, &cm, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, fmt.Errorf("label ConfigMap: %w", err)
		}
	}
	c.tally.saw(req.ClusterName, cl, req.NamespacedName)
	return ctrl.Result{}, nil
}

// tally is what the controller has seen of every cluster.
type tally struct {
	mu       sync.Mutex
	clusters map[multicluster.ClusterName]*seen
}

// seen is what the controller has seen of one cluster.
type seen struct {
	cluster cluster.Cluster // another one means that the cluster was engaged anew, and is counted anew
	objects map[types.NamespacedName]bool
	last    time.Time
}

func newTally() *tally { return &tally{clusters: map[multicluster.ClusterName]*seen{}} }

func (t *tally) saw(name multicluster.ClusterName, cl cluster.Cluster, key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(name, cl).objects[key] = true
}

func (t *tally) gone(name multicluster.ClusterName, cl cluster.Cluster, key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of(name, cl).objects, key)
}

// of returns what was seen of the cluster, which is being seen now. The caller holds mu.
func (t *tally) of(name multicluster.ClusterName, cl cluster.Cluster) *seen {
	s := t.clusters[name]
	if s == nil || s.cluster != cl {
		s = &seen{cluster: cl, objects: map[types.NamespacedName]bool{}}
		t.clusters[name] = s
	}
	s.last = time.Now()
	return s
}

// count returns how many objects the controller knows of the cluster, and when it last heard of one.
func (t *tally) count(name multicluster.ClusterName) (objects int, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.clusters[name]; s != nil {
		return len(s.objects), s.last
	}
	return 0, time.Time{}
}

// has reports whether the controller has seen the object.
func (t *tally) has(name multicluster.ClusterName, key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.clusters[name]
	return s != nil && s.objects[key]
}

// attendance counts how often every cluster was engaged. Everything that is added to a multicluster-runtime manager
// is told of clusters in this way; controllers are, too.
type attendance struct {
	mu       sync.Mutex
	engaged  map[multicluster.ClusterName]int
	contexts map[multicluster.ClusterName]context.Context
}

func newAttendance() *attendance {
	return &attendance{engaged: map[multicluster.ClusterName]int{}, contexts: map[multicluster.ClusterName]context.Context{}}
}

// Engage is called for each cluster that joins; ctx ends when it leaves.
func (a *attendance) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engaged[name]++
	a.contexts[name] = ctx
	return nil
}

// Start has nothing to do: Engage takes note.
func (a *attendance) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// of returns how often the cluster was engaged, and whether it is now.
func (a *attendance) of(name multicluster.ClusterName) (times int, now bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx := a.contexts[name]
	return a.engaged[name], ctx != nil && ctx.Err() == nil
}
