package config

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/connection"
)

// Every option of a backend can be set in a file, or there is a reason why not. An option that is added to a backend makes
// this fail until it is added here as well.
func TestEveryOptionIsInTheFile(t *testing.T) {
	hub := "hub names it by reference"
	for _, c := range []struct {
		options, file any
		not           map[string]string
	}{
		{capi.Options{}, ClusterAPIOptions{}, map[string]string{"Hub": hub, "Select": "a function", "Ready": "a function"}},
		{inventory.Options{}, ClusterProfilesOptions{}, map[string]string{"Hub": hub, "Providers": "providerFile says the same, in KEP-5339's own form"}},
		{inventory.Placement{}, Placement{}, nil},
		{inventory.Readiness{}, Readiness{}, nil},
		{inventory.Condition{}, Condition{}, nil},
		{inventory.TokenSecrets{}, TokenSecrets{}, nil},
		{kubeconfig.Options{}, KubeconfigSecretsOptions{}, map[string]string{"Hub": hub}},
		{kubeconfig.FilesOptions{}, KubeconfigFilesOptions{}, map[string]string{"Logger": "a value of the program"}},
		{connection.Policy{}, Policy{}, nil},
		{aggregate.GuardOptions{}, Guard{}, nil},
		{aggregate.BackendOptions{}, Backend{}, map[string]string{"Events": "a value of the program"}},
	} {
		options, file := fieldsOf(c.options), fieldsOf(c.file)
		for _, name := range options {
			_, excepted := c.not[name]
			if inFile := name != "Hub" && slices.Contains(file, name); inFile == excepted {
				t.Errorf("%T.%s: in the file: %t, excepted: %t", c.options, name, inFile, excepted)
			}
		}
		for name := range maps.Keys(c.not) {
			if !slices.Contains(options, name) {
				t.Errorf("%T.%s is excepted, and does not exist", c.options, name)
			}
		}
		own := []string{"Hub"}
		if reflect.TypeOf(c.file) == reflect.TypeFor[Backend]() {
			own = []string{"Name", "Kind", "Options"}
		}
		for _, name := range file {
			if !slices.Contains(own, name) && !slices.Contains(options, name) {
				t.Errorf("%T.%s stands for no option", c.file, name)
			}
		}
	}
}

func fieldsOf(v any) []string {
	var all []string
	for f := range reflect.TypeOf(v).Fields() {
		all = append(all, f.Name)
	}
	return all
}

// What the file says arrives in the backend's options, and what it leaves out stays nil there.
func TestTransfer(t *testing.T) {
	var got inventory.Options
	transfer(&got, &ClusterProfilesOptions{
		Hub:          Hub{Kubeconfig: "/ignored"},
		Namespaces:   []string{"a"},
		Placement:    &Placement{Key: "k", Grace: time.Minute},
		Readiness:    Readiness{Conditions: []Condition{{Type: "Joined", Absent: "Ready"}}, DisengageAfter: time.Hour},
		ProviderFile: "/p",
		Policy:       Policy{AllowProxy: true, DenyNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	})
	want := inventory.Options{
		Namespaces:   []string{"a"},
		Placement:    &inventory.Placement{Key: "k", Grace: time.Minute},
		Readiness:    inventory.Readiness{Conditions: []inventory.Condition{{Type: "Joined", Absent: inventory.Ready}}, DisengageAfter: time.Hour},
		ProviderFile: "/p",
		Policy:       connection.Policy{AllowProxy: true, DenyNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	var ready inventory.Options
	transfer(&ready, &ClusterProfilesOptions{Readiness: Readiness{Conditions: []Condition{}}})
	if ready.Readiness.Conditions == nil {
		t.Error("an empty list of conditions became none at all, which means the defaults")
	}

	var files kubeconfig.FilesOptions
	transfer(&files, &KubeconfigFilesOptions{Policy: &Policy{AllowFiles: true}})
	if files.Policy == nil || !files.Policy.AllowFiles {
		t.Errorf("got policy %v", files.Policy)
	}
}
