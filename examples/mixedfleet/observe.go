package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tributary-fleet/tributary/aggregate"
)

// settleLimit is how long "--once" waits for a fleet of somebody's own to come to rest.
const settleLimit = 30 * time.Second

// observe shows the fleet of the user's own hub. Nothing is written, neither to the hub nor to the clusters.
func observe(ctx context.Context, o options, s *screen, stdout io.Writer) error {
	hub, err := hubConfig(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	fleet, err := newFleet(hub, o.consumer, aggregate.Options{StopTimeout: 2 * time.Second}, configMaps{readOnly: true})
	if err != nil {
		return err
	}
	s.say("Read-only: the fleet of the hub at %s. ConfigMaps are counted, and nothing is changed.", hub.Host)
	s.show(fleet.table)
	return fleet.during(ctx, s, func(ctx context.Context) error {
		if !o.once {
			s.say("Ctrl-C ends.")
			s.follow(ctx, time.Second)
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, settleLimit)
		defer cancel()
		_, unsettled := until(ctx, "every cluster engaged or found wanting", func() (bool, error) { return fleet.settled(), nil })
		s.conclude()
		if o.output == "json" {
			if err := printJSON(stdout, report{Clusters: fleet.table().list(), Steps: []result{}}); err != nil {
				return err
			}
		}
		for _, b := range fleet.Backends() {
			if b.Synced {
				return unsettled
			}
		}
		return errors.New("no inventory of the hub could be read")
	})
}

// hubConfig reads the user's kubeconfig.
func hubConfig(path, contextName string) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: path},
		&clientcmd.ConfigOverrides{CurrentContext: contextName},
	).ClientConfig()
	if err != nil {
		// The parser's own words are left out: of some files they repeat credentials.
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
		return nil, fmt.Errorf("read kubeconfig %s: it cannot be used with context %q; kubectl config view may tell why", path, contextName)
	}
	return config, nil
}
