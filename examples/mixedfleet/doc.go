// Mixedfleet runs one ordinary controller over clusters from three inventories, on real API servers.
//
//	go run ./examples/mixedfleet
//
// It starts a hub and four member clusters on this machine, lists the members on the hub as ClusterProfiles, as
// Cluster API Clusters and as labelled kubeconfig Secrets, and shows a live table of the fleet. A narrated tour then
// rotates a credential, adds clusters, silences a member and removes a cluster. Nothing is needed but Go and git;
// nothing is left behind.
//
// Where to read first: fleet.go is what a program of yours would contain, and controller.go the controller, which
// knows nothing of inventories. The other files are the demonstration around them:
//
//	stage.go, register.go   the control planes, and what people would write to a hub
//	tour.go, steps.go       the narrated tour, each step checked
//	table.go, screen.go     the live table
//	main.go, signals.go     flags, and what ends it all
//	run.go                  the demonstration, from start to end
//	observe.go              the same for a hub of your own, read-only
package main
