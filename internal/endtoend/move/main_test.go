package move_test

import (
	"testing"

	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

var planes controlplane.Pool

func TestMain(m *testing.M) { endtoend.Main(m, &planes) }
