package inventory

import (
	"encoding/json"
	"errors"
	"sync"

	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// providerFile holds the access providers of the last good provider file, from one run of a backend to the next.
// Its methods may be called concurrently.
type providerFile struct {
	mu     sync.Mutex
	config *access.Config // never changed, only exchanged; without providers before a file was loaded
}

func newProviderFile() *providerFile { return &providerFile{config: &access.Config{}} }

func (f *providerFile) current() *access.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

// load takes over the content of a file in the form of KEP-5339. Errors quote nothing: plugins' arguments may hold
// credentials.
func (f *providerFile) load(data []byte) error {
	config := new(access.Config)
	if err := json.Unmarshal(data, config); err != nil {
		return errors.New("this is no JSON of access providers")
	}
	if len(config.Providers) == 0 {
		return errors.New("it lists no access provider")
	}
	if err := validateProviders(config.Providers); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config = config
	return nil
}

// watcher watches the file for one run.
func (f *providerFile) watcher(path string, members func() []string) hub.Watcher {
	return hub.NewFile(hub.FileOptions{
		Path: path, Load: f.load, Loaded: len(f.current().Providers) > 0,
		Reason: backends.ReasonProviderFileInvalid, Members: members,
	})
}
