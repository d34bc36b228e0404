package config

import (
	"reflect"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/capi"
	"github.com/tributary-fleet/tributary/backends/inventory"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
)

func buildClusterProfiles(o *ClusterProfilesOptions, env Environment) (backends.Backend, error) {
	hub, err := env.Hub(o.Hub)
	if err != nil {
		return nil, err
	}
	opts := inventory.Options{Hub: hub}
	transfer(&opts, o)
	return inventory.New(opts)
}

func buildClusterAPI(o *ClusterAPIOptions, env Environment) (backends.Backend, error) {
	hub, err := env.Hub(o.Hub)
	if err != nil {
		return nil, err
	}
	opts := capi.Options{Hub: hub}
	transfer(&opts, o)
	return capi.New(opts)
}

func buildKubeconfigSecrets(o *KubeconfigSecretsOptions, env Environment) (backends.Backend, error) {
	hub, err := env.Hub(o.Hub)
	if err != nil {
		return nil, err
	}
	opts := kubeconfig.Options{Hub: hub}
	transfer(&opts, o)
	return kubeconfig.New(opts)
}

func buildKubeconfigFiles(o *KubeconfigFilesOptions, _ Environment) (backends.Backend, error) {
	var opts kubeconfig.FilesOptions
	transfer(&opts, o)
	return kubeconfig.NewFiles(opts)
}

// BackendOptions returns what a provider is told about the backend. Events are left to the caller.
func (b Backend) BackendOptions() aggregate.BackendOptions {
	opts := aggregate.BackendOptions{Prefix: b.prefix(), Replace: b.Replace}
	transfer(&opts.Guard, &b.Guard)
	return opts
}

// transfer sets the fields of the struct that to points to from those of the same names. What is in the file alone, or
// cannot be in a file, stays as it is; a test knows which fields these are.
func transfer(to, from any) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for field, value := range f.Fields() {
		if target := t.FieldByName(field.Name); target.IsValid() && field.Type != reflect.TypeFor[Hub]() {
			convert(target, value)
		}
	}
}

func convert(to, from reflect.Value) {
	switch {
	case from.Type().ConvertibleTo(to.Type()):
		to.Set(from.Convert(to.Type()))
	case from.Kind() == reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
			convert(to.Elem(), from.Elem())
		}
	case from.Kind() == reflect.Slice:
		if !from.IsNil() { // an empty list may mean something else than none
			to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				convert(to.Index(i), from.Index(i))
			}
		}
	default: // a struct
		transfer(to.Addr().Interface(), from.Addr().Interface())
	}
}

// hub returns the field Hub of the backend's options, if they have one.
func (b Backend) hub() (Hub, bool) {
	v := reflect.Indirect(reflect.ValueOf(b.Options))
	if v.Kind() != reflect.Struct {
		return Hub{}, false
	}
	f := v.FieldByName("Hub")
	if !f.IsValid() || f.Type() != reflect.TypeFor[Hub]() {
		return Hub{}, false
	}
	return f.Interface().(Hub), true
}
