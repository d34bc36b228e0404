package deps

import (
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/google/cel-go/cel"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/hashicorp/go-multierror"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	_ "k8s.io/client-go/kubernetes"
	_ "sigs.k8s.io/cluster-api/api/core/v1beta1"
	_ "sigs.k8s.io/cluster-api/api/core/v1beta2"
	_ "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	_ "sigs.k8s.io/cluster-inventory-api/pkg/access"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/multicluster-runtime/pkg/builder"
	_ "sigs.k8s.io/multicluster-runtime/pkg/manager"
)
