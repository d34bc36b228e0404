package endtoend

import (
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// Main runs a package's tests, without what controller-runtime logs, and stops the control planes of the pool.
func Main(m *testing.M, planes *controlplane.Pool) {
	ctrl.SetLogger(logr.Discard())
	controlplane.Main(m, planes)
}
