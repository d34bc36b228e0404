// Package kubeconfig is the backend for clusters whose kubeconfigs lie in Secrets of a hub.
//
// Every Secret that carries the label is one cluster; by default it is the label of multicluster-runtime's own
// kubeconfig provider. The member is named "namespace/name" after its Secret. It is disengaged when the Secret is
// deleted, loses its label or loses its key, and held, with any running engagement, while the Secret's data is damaged.
package kubeconfig
