// Minimal is the least that a program needs to have its controllers work in a mixed fleet.
package main

import (
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/backends/inventory"
)

func main() {
	hub := ctrl.GetConfigOrDie()

	profiles, err := inventory.New(inventory.Options{Hub: hub, Consumer: "my-controller"})
	exitOn(err)
	clusters, err := capi.New(capi.Options{Hub: hub})
	exitOn(err)

	fleet, err := aggregate.New(aggregate.Options{})
	exitOn(err)
	exitOn(fleet.Add("inventory", profiles, aggregate.BackendOptions{}))
	exitOn(fleet.Add("capi", clusters, aggregate.BackendOptions{}))

	mgr, err := mcmanager.New(hub, fleet, mcmanager.Options{}) // the fleet is the manager's provider
	exitOn(err)
	// Your controllers come here as they are: mcbuilder.ControllerManagedBy(mgr). …
	exitOn(mgr.Start(ctrl.SetupSignalHandler()))
}

func exitOn(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
