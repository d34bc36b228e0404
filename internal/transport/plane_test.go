package transport

import (
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

var planes controlplane.Pool

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	controlplane.Main(m, &planes)
}
