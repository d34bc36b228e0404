// Package crds pins the modules whose CustomResourceDefinitions are installed in test control planes. The
// YAML files lie inside the modules' zips, which go.sum checks; the imports only keep the requirements.
package crds

import (
	_ "sigs.k8s.io/cluster-api/version"
	_ "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
)
