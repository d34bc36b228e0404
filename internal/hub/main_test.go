package hub

import (
	"testing"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

var planes controlplane.Pool

func TestMain(m *testing.M) { controlplane.Main(m, &planes) }
