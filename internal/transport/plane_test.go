package transport

import (
	"flag"
	"log"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

var planes controlplane.Pool

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	// The parallel tests wait for servers and for watches to grow old, rather than compute. A flag on the command line still wins.
	if err := flag.Set("test.parallel", "8"); err != nil {
		log.Fatal(err)
	}
	controlplane.Main(m, &planes)
}
