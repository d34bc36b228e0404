// Package config reads a fleet from a file: which inventories it consists of, how they are reached, and in which order
// they take precedence.
//
//	apiVersion: config.tributary.dev/v1alpha1
//	kind: Fleet
//	backends:
//	- name: profiles
//	  kind: ClusterProfiles
//	  prefix: prod
//	  options:
//	    providerFile: /etc/fleet/providers.json
//	- name: capi
//	  kind: ClusterAPI
//	  prefix: prod
//	  options:
//	    hub: {kubeconfig: /etc/fleet/management.kubeconfig}
//
// A file is read strictly, and everything that is wrong with it is told at once, with lines: see [Finding]. It holds no
// credentials, only references to the files that do. Users add kinds of backends of their own with [Register].
//
// [Compare] tells what has to be done for one configuration to become another, and [Apply] does that to a provider.
package config
