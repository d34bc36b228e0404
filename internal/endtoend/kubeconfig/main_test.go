package kubeconfig_test

import (
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

var planes controlplane.Pool

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	controlplane.Main(m, &planes)
}
