package config_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/config"
)

var update = flag.Bool("update", false, "write fleet.schema.json anew")

// The schema that editors are given is that of the types.
func TestSchemaIsUpToDate(t *testing.T) {
	want, err := config.Schema(config.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("fleet.schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("fleet.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("fleet.schema.json is stale; run: go test ./config -run TestSchemaIsUpToDate -update\n(-types +file):\n%s", diff)
	}
}
