package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadmeQuotesThisProgram keeps the README's program one that compiles.
func TestReadmeQuotesThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "<!-- examples/minimal/main.go -->\n```go\n")
	if !found {
		t.Fatal("README.md quotes no program")
	}
	quoted, _, _ := strings.Cut(after, "```")
	if diff := cmp.Diff(string(program), quoted); diff != "" {
		t.Errorf("README.md quotes another program (-main.go +README.md):\n%s", diff)
	}
}
