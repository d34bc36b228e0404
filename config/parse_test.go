package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// coffeeOptions are those of a user's own kind of backend.
type coffeeOptions struct {
	Beans string     `json:"beans"`
	Cups  int        `json:"cups"`
	Hub   config.Hub `json:"hub"`
}

func registry(t testing.TB) *config.Registry {
	kinds := config.NewRegistry()
	err := config.Register(kinds, "Coffee", func(o *coffeeOptions, env config.Environment) (backends.Backend, error) {
		if o.Beans == "" {
			return nil, errors.New("beans is required")
		}
		_, err := env.Hub(o.Hub)
		return nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// What users read when a file is wrong: each case is a file and the findings.
func TestFindings(t *testing.T) {
	kinds := registry(t)
	datadriven.Walk(t, "testdata/findings", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			fleet, err := config.Parse([]byte(d.Input), kinds)
			if err != nil {
				if fleet != nil || len(config.Findings(err)) == 0 {
					t.Errorf("a fleet with an error, or an error without findings: %v", err)
				}
				return err.Error() + "\n"
			}
			var b strings.Builder
			for _, backend := range fleet.Backends {
				fmt.Fprintf(&b, "%s %s\n", backend.Name, backend.Kind)
			}
			return "good\n" + b.String()
		})
	})
}

func TestFindingsAreFieldErrors(t *testing.T) {
	_, err := config.Parse([]byte("apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends:\n- prefix: a\n  kind: ClusterAPI\n"), registry(t))
	found := config.Findings(err)
	if len(found) != 1 {
		t.Fatalf("got %d findings, want 1: %v", len(found), err)
	}
	var got *field.Error
	if !errors.As(found[0], &got) {
		t.Fatal("a finding is no field.Error")
	}
	want := &field.Error{Type: field.ErrorTypeRequired, Field: "backends[0].name", BadValue: "", Detail: "required"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A credential that somebody put into the file must not come out in an error.
func TestFindingsShowNoValues(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9"
	for _, text := range []string{
		"apiVersion: " + secret + "\nkind: " + secret + "\nbackends: " + secret,
		"apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends:\n- {name: " + secret + ", kind: " + secret + ", prefix: " + secret + "}",
		"apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends:\n- {name: a, kind: ClusterAPI, options: {token: " + secret + ", moveGrace: " + secret + ", policy: " + secret + "}}",
	} {
		_, err := config.Parse([]byte(text), registry(t))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("no error, or one that shows the value: %v", err)
		}
	}
}

func TestParseSize(t *testing.T) {
	_, err := config.Parse(make([]byte, config.MaxSize+1), registry(t))
	if err == nil || err.Error() != "the file is larger than 1 MiB" {
		t.Errorf("got %v", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if _, err := config.Load(path, registry(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: got %v", err)
	}
	if err := os.WriteFile(path, []byte("apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends:\n- {name: a, kind: Coffee, options: {beans: arabica, cups: 3}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(path, registry(t))
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Fleet{APIVersion: config.APIVersion, Kind: config.Kind,
		Backends: []config.Backend{{Name: "a", Kind: "Coffee", Options: &coffeeOptions{Beans: "arabica", Cups: 3}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = got.Backends[0].Build(registry(t), config.Environment{})
	if err == nil || err.Error() != `build backend "a": hub.kubeconfig is required, since the program has no cluster of its own` {
		t.Errorf("without a hub: got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "a: &x [*x]", "apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends: []\n",
		"apiVersion: config.tributary.dev/v1alpha1\nkind: Fleet\nbackends:\n- {name: a, kind: ClusterAPI, options: {hub: {kubeconfig: /k}, moveGrace: 5m}}\n",
	} {
		f.Add([]byte(seed))
	}
	kinds := registry(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		fleet, err := config.Parse(data, kinds)
		if (fleet == nil) != (err != nil) || err != nil && len(config.Findings(err)) == 0 {
			t.Errorf("got fleet %v, error %v", fleet, err)
		}
	})
}
