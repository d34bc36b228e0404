package main

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
)

// The backends' names. They are what the clusters' names begin with: "capi/infra/osaka".
const (
	inventoryBackend  = "inventory"
	capiBackend       = "capi"
	kubeconfigBackend = "kubeconfig"
)

// defaultConsumer is the name under which ClusterProfiles' credentials are meant for this program (KEP-4322).
const defaultConsumer = "mixedfleet"

// fleet is one provider for all inventories, a manager that uses it, and what the controller has done.
type fleet struct {
	*aggregate.Provider
	manager    mcmanager.Manager
	tally      *tally
	attendance *attendance
}

// newFleet puts together what any program does that runs controllers over a mixed fleet: backends, one provider of
// them all, a multicluster-runtime manager, and controllers. It starts nothing.
func newFleet(hub *rest.Config, consumer string, options aggregate.Options, controller configMaps) (*fleet, error) {
	// One provider for all inventories.
	provider, err := aggregate.New(options)
	if err != nil {
		return nil, err
	}

	// The inventories. All are on one hub here; each could have a hub of its own.
	profiles, err := inventory.New(inventory.Options{Hub: hub, Consumer: consumer})
	if err != nil {
		return nil, err
	}
	clusters, err := capi.New(capi.Options{Hub: hub})
	if err != nil {
		return nil, err
	}
	secrets, err := kubeconfig.New(kubeconfig.Options{Hub: hub})
	if err != nil {
		return nil, err
	}
	for _, b := range []struct {
		name    string
		backend backends.Backend
	}{{inventoryBackend, profiles}, {capiBackend, clusters}, {kubeconfigBackend, secrets}} {
		if err := provider.Add(b.name, b.backend, aggregate.BackendOptions{}); err != nil {
			return nil, err
		}
	}

	// An ordinary multicluster-runtime manager. It starts the provider, and the provider its backends.
	stopWithin := 3 * time.Second // Ctrl-C is to end everything soon
	mgr, err := mcmanager.New(hub, provider, manager.Options{
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // none: the port may be taken
		GracefulShutdownTimeout: &stopWithin,
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}

	f := &fleet{Provider: provider, manager: mgr, tally: newTally(), attendance: newAttendance()}
	controller.manager, controller.tally = mgr, f.tally
	if err := controller.setUp(); err != nil {
		return nil, fmt.Errorf("set up controller: %w", err)
	}
	if err := mgr.Add(f.attendance); err != nil {
		return nil, fmt.Errorf("add attendance: %w", err)
	}
	return f, nil
}
