package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	const good = "apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends:\n- {name: a, kind: ClusterAPI}\n"
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(good, "name:", "nmae:", 1)
	for name, c := range map[string]struct {
		args      []string
		in        string
		code      int
		out, errs string // contained in what is printed
	}{
		"good file":     {args: []string{"check", "-f", path}, out: "nothing is wrong; backends: 1"},
		"good input":    {args: []string{"check", "-f", "-"}, in: good, out: "nothing is wrong"},
		"findings":      {args: []string{"check", "-f", "-"}, in: bad, code: 1, out: `stdin: line 4, column 4: backends[0].nmae: unknown field, did you mean "name"?`},
		"missing file":  {args: []string{"check", "-f", path + "x"}, code: 2, errs: "no such file"},
		"no file":       {args: []string{"check"}, code: 2, errs: `required flag(s) "filename" not set`},
		"unknown flag":  {args: []string{"check", "--live"}, code: 2, errs: "unknown flag: --live"},
		"other command": {args: []string{"chek"}, code: 2, errs: `unknown command "chek"`},
		"schema":        {args: []string{"schema"}, out: `"const": "config.tributary.dev/v1alpha1"`},
		"version":       {args: []string{"version"}, out: "tributary "},
		"completion":    {args: []string{"completion", "bash"}, out: "bash completion"},
		"help":          {args: []string{"--help"}, out: "Available Commands"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(c.args, strings.NewReader(c.in), &out, &errs); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
				t.Errorf("printed:\n%s\nand as errors:\n%s", out.String(), errs.String())
			}
		})
	}
}
