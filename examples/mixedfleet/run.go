package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// demonstrate runs the demonstration: control planes, fleet and tour.
func demonstrate(ctx context.Context, o options, s *screen, stdout io.Writer) (err error) {
	began := time.Now()
	s.say("Starting a hub and three member clusters, each a real kube-apiserver with its etcd. A fourth member follows later.")
	tour, err := setStage(ctx, s)
	start := resultOf("start", time.Since(began), err)
	if err != nil {
		if o.output == "json" && ctx.Err() == nil {
			err = errors.Join(err, printJSON(stdout, report{Clusters: []listed{}, Steps: []result{start}}))
		}
		return err
	}
	defer func() { err = errors.Join(err, tour.stage.stop()) }()
	if !o.once {
		tour.pause = 1500 * time.Millisecond
	}
	s.show(tour.fleet.table)

	return tour.fleet.during(ctx, s, func(ctx context.Context) error {
		report, err := tour.run(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.say("")
		s.conclude()
		if err == nil {
			s.say("All %d steps did what they say, %s after the start.", len(report.Steps), since(began))
		} else {
			s.say("%v", err)
		}
		switch {
		case o.output == "json":
			report.Steps = append([]result{start}, report.Steps...)
			return errors.Join(err, printJSON(stdout, report))
		case o.once:
			return err
		}
		if err := invite(s, tour.stage); err != nil {
			return err
		}
		s.follow(ctx, time.Second)
		return nil
	})
}

// setStage starts the control planes, fills the inventories, and puts the fleet together, which is not started yet.
// The tour's stage has to be stopped, unless there is an error.
func setStage(ctx context.Context, s *screen) (*tour, error) {
	stage, err := startStage(ctx, s)
	if err != nil {
		return nil, err
	}
	fleet, err := newFleet(stage.hub.Config(), defaultConsumer, demoOptions(), configMaps{})
	if err != nil {
		return nil, errors.Join(err, stage.stop())
	}
	t := &tour{stage: stage, fleet: fleet, screen: s, tokens: map[multicluster.ClusterName]*controlplane.Token{}}
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	if err := t.prepare(ctx); err != nil {
		return nil, errors.Join(err, stage.stop())
	}
	return t, nil
}

// invite tells people what they can do while the fleet is up.
func invite(s *screen, stage *stage) error {
	hub, err := kubeconfigFile(stage.hub)
	if err != nil {
		return err
	}
	member, err := kubeconfigFile(stage.members[lima].plane)
	if err != nil {
		return err
	}
	s.say("")
	s.say("The fleet stays up until Ctrl-C. With kubectl, you can change it meanwhile, for instance:")
	s.say("  kubectl --kubeconfig %s get clusterprofiles,clusters,secrets -A", hub)
	s.say("  kubectl --kubeconfig %s create configmap -n %s supper", member, workNamespace)
	return nil
}

// demoOptions are quicker than the defaults, so that a lost cluster is noticed within seconds, while somebody watches.
func demoOptions() aggregate.Options {
	return aggregate.Options{
		ProbeInterval: time.Second, ProbeTimeout: time.Second, ProbeFailures: 3,
		ConnectTimeout: 3 * time.Second, RetryBase: 500 * time.Millisecond, RetryMax: 2 * time.Second,
		DrainTimeout: 2 * time.Second, StopTimeout: 2 * time.Second,
		// The members have ConfigMaps of their own, which are none of our business.
		ClusterOptions: []cluster.Option{func(o *cluster.Options) {
			o.Cache.ByObject = map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{workNamespace: {}}},
			}
		}},
	}
}

// during runs the fleet, and beside it what do does, until that returns or the fleet fails.
func (f *fleet) during(ctx context.Context, s *screen, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := f.manager.Start(ctx); err != nil {
			return fmt.Errorf("run manager: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		s.run(ctx)
		return nil
	})
	group.Go(func() error {
		defer cancel()
		return do(ctx)
	})
	return group.Wait()
}

// settled reports whether the fleet has been read and every cluster has had its first chance.
func (f *fleet) settled() bool {
	for _, b := range f.Backends() {
		if !b.Synced && (b.Health.Reason == "" || b.Health.Reason == backends.ReasonStarting) {
			return false
		}
	}
	for _, c := range f.Clusters() {
		if c.State == backends.Connecting && c.Attempt == 0 || c.Reason == backends.ReasonSyncing {
			return false
		}
	}
	return true
}

func printJSON(w io.Writer, r report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}
