package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tributary-fleet/tributary/config"
)

// What the README shows is a fleet.
func TestReadmeShowsAFleet(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```yaml\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("README.md shows no YAML")
	}
	for _, block := range blocks {
		file, _, _ := strings.Cut(block, "```")
		if _, err := config.Parse([]byte(file), config.NewRegistry()); err != nil {
			t.Errorf("%v\nin:\n%s", err, file)
		}
	}
}
