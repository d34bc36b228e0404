package tools

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/OpenPeeDeeP/depguard/v2"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/go/analysis"
)

const (
	rules  = "../../.depguard.yaml"
	module = "github.com/tributary-fleet/tributary/"
)

func TestRules(t *testing.T) {
	b, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	var settings depguard.LinterSettings
	if err := yaml.Unmarshal(b, &settings); err != nil {
		t.Fatal(err)
	}
	analyzer, err := depguard.NewAnalyzer(&settings)
	if err != nil {
		t.Fatal(err)
	}
	// refused reports whether a file may not import a package of ours.
	refused := func(t *testing.T, file, path string) bool {
		t.Helper()
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, "/src/tributary/"+file, "package p\nimport _ \""+module+path+"\"\n", parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		reports := 0
		pass := &analysis.Pass{Analyzer: analyzer, Fset: fset, Files: []*ast.File{parsed}, Report: func(analysis.Diagnostic) { reports++ }}
		if _, err := analyzer.Run(pass); err != nil {
			t.Fatal(err)
		}
		return reports > 0
	}
	for _, tt := range []struct {
		file    string
		may     string // packages that it may import
		mustNot string // packages that it must not
	}{
		{"connection/spec.go", "", "backends internal/execplugin internal/transport aggregate config"},
		{"backends/backend.go", "connection", "aggregate backends/capi internal/hub internal/engagement"},
		{"backends/backendtest/suite.go", "backends connection", "backends/capi internal/hub aggregate internal/testing/controlplane"},
		{"backends/capi/capi.go", "backends connection internal/hub", "aggregate backends/inventory backends/kubeconfig internal/engagement internal/transport config internal/testing/controlplane internal/hub/hubtest backends/backendtest"},
		{"backends/capi/capi_test.go", "backends/capi backends/backendtest internal/hub/hubtest internal/testing/controlplane", "aggregate backends/inventory internal/engagement"},
		{"backends/inventory/inventory.go", "backends connection internal/hub", "aggregate backends/capi backends/kubeconfig internal/engagement"},
		{"backends/kubeconfig/secrets.go", "backends connection internal/hub", "aggregate backends/capi backends/inventory internal/engagement"},
		{"backends/new/new.go", "", "backends connection aggregate"},
		{"internal/hub/client.go", "backends connection", "backends/capi aggregate internal/testing/controlplane backends/backendtest"},
		{"internal/hub/hub_test.go", "backends/backendtest internal/hub/hubtest", "backends/capi aggregate"},
		{"internal/hub/hubtest/hub.go", "internal/testing/controlplane", "backends/capi aggregate"},
		{"internal/restmapper/mapper.go", "", "connection internal/transport backends"},
		{"internal/execplugin/runner.go", "connection", "internal/transport backends aggregate"},
		{"internal/transport/generation.go", "connection internal/execplugin", "backends internal/restmapper internal/engagement"},
		{"internal/engagement/engine.go", "backends connection internal/transport internal/restmapper internal/execplugin", "aggregate backends/capi internal/hub config internal/testing/faultproxy"},
		{"internal/engagement/engine_test.go", "internal/testing/faultproxy internal/testing/controlplane", "aggregate backends/capi"},
		{"aggregate/provider.go", "backends connection internal/engagement", "config backends/capi internal/transport internal/hub internal/testing/controlplane"},
		{"aggregate/provider_test.go", "backends/capi internal/testing/controlplane", "config internal/transport"},
		{"config/fleet.go", "aggregate backends backends/capi connection", "internal/engagement internal/testing/controlplane cmd/tributary"},
		{"cmd/tributary/main.go", "config aggregate backends/capi", "internal/testing/controlplane backends/backendtest"},
		{"examples/mixedfleet/main.go", "config aggregate backends/capi internal/testing/controlplane", ""},
		{"bench/bench_test.go", "aggregate backends/capi internal/testing/controlplane", ""},
		{"internal/testing/controlplane/start.go", "internal/testing/faultproxy", "connection backends aggregate internal/hub/hubtest"},
		{"internal/brandnew/thing.go", "", "connection backends aggregate"},
	} {
		for _, path := range strings.Fields(tt.may) {
			if refused(t, tt.file, path) {
				t.Errorf("%s may not import %s, want it allowed", tt.file, path)
			}
		}
		for _, path := range strings.Fields(tt.mustNot) {
			if !refused(t, tt.file, path) {
				t.Errorf("%s may import %s, want it refused", tt.file, path)
			}
		}
	}
}

// TestLinterFailsOnABrokenRule runs the linter as .ci/run does, on a module in which a backend imports the aggregate.
func TestLinterFailsOnABrokenRule(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "tool", "-n", "depguard").Output()
	if err != nil {
		t.Fatal(err)
	}
	linter := strings.TrimSpace(string(out))
	b, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), linter, "./...")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PWD="+dir, "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	write(".depguard.yaml", string(b))
	write("go.mod", "module "+strings.TrimSuffix(module, "/")+"\n\ngo 1.26\n")
	write("backends/backends.go", "package backends\n")
	write("aggregate/aggregate.go", "package aggregate\n\nimport _ \""+module+"backends\"\n")
	write("backends/capi/capi.go", "package capi\n\nimport _ \""+module+"backends\"\n")
	if out, err := run(); err != nil {
		t.Errorf("linter fails where no rule is broken: %v\n%s", err, out)
	}
	write("backends/capi/capi.go", "package capi\n\nimport _ \""+module+"aggregate\"\n")
	out2, err := run()
	if err == nil || !strings.Contains(out2, "capi.go") || !strings.Contains(out2, "no backend knows another") {
		t.Errorf("linter says %v where a backend imports the aggregate, want it to fail with the rule:\n%s", err, out2)
	}
}
