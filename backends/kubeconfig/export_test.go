package kubeconfig

import "github.com/fsnotify/fsnotify"

// SetNotify replaces what opens the watcher of the file system.
func (f *Files) SetNotify(open func() (*fsnotify.Watcher, error)) { f.notify = open }
