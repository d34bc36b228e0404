// Package kubeconfig holds the backends for clusters whose kubeconfigs lie in Secrets of a hub ([New]) or in files ([NewFiles]).
//
// # Secrets
//
// Every Secret that carries the label is one cluster; by default it is the label of multicluster-runtime's own
// kubeconfig provider. The member is named "namespace/name" after its Secret. It is disengaged when the Secret is
// deleted, loses its label or loses its key, and held, with any running engagement, while the Secret's data is damaged.
//
// # Files
//
// Every context of every file is a cluster; files are not merged, so entries of one name in two files have nothing to
// do with each other. [Files] reads all files whenever the file system says that something has changed where it
// matters, and every now and then besides, and compares what it reads with what it read before, byte by byte. So it does not
// matter in what way a file is changed, and what is written anew without a change does nothing. Files that a
// kubeconfig refers to, such as the projected token of a service account, are part of it.
//
// A context harms itself only. One that worked and is damaged is held with its running engagement for a bounded
// time. One that is refused by policy, or gone, is not. Damage and absence have to last for a moment to be believed, since
// that is what a file in the midst of being written looks like.
package kubeconfig
