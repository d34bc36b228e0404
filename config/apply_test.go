package config_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/config"
)

// How one file becomes another: each case is the next file, and what is done about it. A provider without a manager takes it, so
// the aggregate's own rules hold.
func TestApply(t *testing.T) {
	datadriven.Walk(t, "testdata/apply", func(t *testing.T, path string) {
		kinds := registry(t)
		provider, err := aggregate.New(aggregate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		now := &config.Fleet{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			next, err := config.Parse([]byte(head+"  "+strings.ReplaceAll(d.Input, "\n", "\n  ")), kinds)
			if err != nil {
				return err.Error() + "\n"
			}
			diff := config.Compare(now, next)
			did, err := config.Apply(t.Context(), provider, diff, config.ApplyOptions{Kinds: kinds,
				Environment: config.Environment{Local: &rest.Config{Host: "https://hub.invalid"}}})
			if diff.Empty() != (err == nil && len(did) == 0) {
				t.Errorf("the difference is empty: %t, and yet: %q, %v", diff.Empty(), did, err)
			}
			if err != nil {
				return err.Error() + "\n" + strings.Join(did, "\n")
			}
			now = next
			if left := config.Compare(now, next); !left.Empty() {
				t.Errorf("what was applied differs from itself: %+v", left)
			}
			var b strings.Builder
			for _, line := range did {
				fmt.Fprintln(&b, line)
			}
			b.WriteString("now:")
			for _, s := range provider.Backends() {
				b.WriteString(" " + s.Name)
			}
			return b.String() + "\n"
		})
	})
}

// failing is a provider that refuses everything about one backend.
type failing struct {
	config.Provider
	name string
}

func (f failing) Remove(ctx context.Context, name string) error {
	if name == f.name {
		return errors.New("refused")
	}
	return f.Provider.Remove(ctx, name)
}

// One step that fails keeps no other from being done.
func TestApplyGoesOnAfterAnError(t *testing.T) {
	provider, err := aggregate.New(aggregate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fleet := &config.Fleet{Backends: []config.Backend{
		{Name: "a", Kind: config.KindKubeconfigFiles, Options: &config.KubeconfigFilesOptions{Paths: []string{"/a"}}},
		{Name: "b", Kind: config.KindKubeconfigFiles, Options: &config.KubeconfigFilesOptions{Paths: []string{"/b"}}},
	}}
	opts := config.ApplyOptions{Kinds: config.NewRegistry()}
	if _, err := config.Apply(t.Context(), provider, config.Compare(&config.Fleet{}, fleet), opts); err != nil {
		t.Fatal(err)
	}
	did, err := config.Apply(t.Context(), failing{provider, "a"}, config.Compare(fleet, &config.Fleet{}), opts)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got error %v", err)
	}
	if len(did) != 1 || did[0] != `removed backend "b"` {
		t.Errorf("did %q", did)
	}
}
