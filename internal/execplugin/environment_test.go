package execplugin

import (
	"slices"
	"strings"
	"testing"

	"github.com/tributary-fleet/tributary/connection"
)

func TestOperatorsMaySetWhatInventoriesMayNot(t *testing.T) {
	variable := connection.EnvVar{Name: "HOME", Value: connection.NewSecret("/plugins")}
	if env, problem := environment(nil, connection.Exec{Env: []connection.EnvVar{variable}}, connection.Endpoint{}); problem == "" {
		t.Errorf("an inventory may set HOME: %d variables", len(env))
	}
	variable.Configured = true
	env, problem := environment(nil, connection.Exec{Env: []connection.EnvVar{variable}}, connection.Endpoint{})
	if problem != "" || !slices.Contains(env, "HOME=/plugins") {
		t.Errorf("an operator may not set HOME: %s", problem)
	}
	variable.Name = "Kubernetes_exec_info"
	if _, problem := environment(nil, connection.Exec{Env: []connection.EnvVar{variable}}, connection.Endpoint{}); problem == "" {
		t.Error("an operator may replace the request")
	}
}

func TestRefusedNamesAreQuotedAndBounded(t *testing.T) {
	name := "LD_\n" + strings.Repeat("X", 1<<20)
	_, problem := environment(nil, connection.Exec{Env: []connection.EnvVar{{Name: name}}}, connection.Endpoint{})
	if !strings.Contains(problem, `"LD_\nX`) || len(problem) > 128 {
		t.Errorf("a problem of %d bytes: %.100q", len(problem), problem)
	}
}
