package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tributary-fleet/tributary/backends"
)

// Registry knows the kinds of backends that a file may use. It may be used concurrently once all kinds are registered.
type Registry struct {
	kinds map[string]kind
}

// kind is how a backend's options are typed, and how it is made of them.
type kind struct {
	options reflect.Type // a struct
	build   func(options any, env Environment) (backends.Backend, error)
}

// NewRegistry returns a registry of Tributary's own kinds.
func NewRegistry() *Registry {
	r := &Registry{kinds: map[string]kind{}}
	set(r, KindClusterProfiles, buildClusterProfiles)
	set(r, KindClusterAPI, buildClusterAPI)
	set(r, KindKubeconfigSecrets, buildKubeconfigSecrets)
	set(r, KindKubeconfigFiles, buildKubeconfigFiles)
	return r
}

// Register adds a kind of backend. Its options are a struct T whose fields are named by json tags; they may be strings,
// bools, ints, float64s, time.Durations, encoding.TextUnmarshalers, [Hub]s, and structs, pointers and slices of such.
//
// Build makes a backend of them. It is also called to check a file, so it must make no request and open no file of its own;
// a hub is reached by [Environment.Hub]. Its errors are shown to users as findings about the options.
func Register[T any](r *Registry, name string, build func(options *T, env Environment) (backends.Backend, error)) error {
	if name == "" || build == nil {
		return errors.New("register kind of backend: a name and a function are needed")
	}
	if reflect.TypeFor[T]().Kind() != reflect.Struct {
		return fmt.Errorf("register kind of backend %q: its options are a %s, and must be a struct", name, reflect.TypeFor[T]())
	}
	if _, taken := r.kinds[name]; taken {
		return fmt.Errorf("register kind of backend %q: the name is taken", name)
	}
	set(r, name, build)
	return nil
}

func set[T any](r *Registry, name string, build func(*T, Environment) (backends.Backend, error)) {
	r.kinds[name] = kind{options: reflect.TypeFor[T](), build: func(options any, env Environment) (backends.Backend, error) {
		typed, ok := options.(*T)
		if !ok {
			return nil, fmt.Errorf("options of kind %s: they are a %T, and must be a %T", name, options, typed)
		}
		return build(typed, env)
	}}
}

// Kinds returns the names of all kinds, sorted.
func (r *Registry) Kinds() []string { return slices.Sorted(maps.Keys(r.kinds)) }

// Environment is what backends are built in.
type Environment struct {
	// Local is the cluster that the program works for: the hub of backends that name no kubeconfig. Nil: there is none.
	Local *rest.Config
	// checking says that nothing is built for use.
	checking bool
}

// Hub returns how a hub is reached. It reads the hub's kubeconfig, if it names one; errors show none of its contents.
func (e Environment) Hub(h Hub) (*rest.Config, error) {
	switch {
	case h.Kubeconfig != "" && !filepath.IsAbs(h.Kubeconfig):
		return nil, errors.New("hub.kubeconfig must be an absolute path")
	case h.Kubeconfig == "" && h.Context != "":
		return nil, errors.New("hub.context needs hub.kubeconfig")
	case e.checking:
		return &rest.Config{Host: "https://hub.invalid"}, nil
	case h.Kubeconfig == "" && e.Local == nil:
		return nil, errors.New("hub.kubeconfig is required, since the program has no cluster of its own")
	case h.Kubeconfig == "":
		return rest.CopyConfig(e.Local), nil
	}
	if _, err := os.Stat(h.Kubeconfig); err != nil {
		return nil, fmt.Errorf("hub.kubeconfig: %w", err)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: h.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: h.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("hub.kubeconfig: %s is no usable kubeconfig, or lacks the context", h.Kubeconfig)
	}
	return config, nil
}
