package kubeconfig

import (
	"cmp"
	"fmt"
)

// Preset is a project's convention for Secrets that hold kubeconfigs.
type Preset string

// The presets, and the options that each of them fills.
const (
	// PresetMCR is for multicluster-runtime's kubeconfig provider: the label
	// sigs.k8s.io/multicluster-runtime-kubeconfig=true and the key kubeconfig.
	PresetMCR Preset = "mcr"
	// PresetCAPI is for the Secrets of Cluster API's clusters: the label cluster.x-k8s.io/cluster-name, names that end in
	// -kubeconfig, and the key value. The backend in package capi knows the clusters themselves.
	PresetCAPI Preset = "CAPI"
	// PresetFlux is for the Secrets that Flux refers to by spec.kubeConfig.secretRef: the keys value and value.yaml. They have
	// no label in common, so a selector or namespaces have to be given.
	PresetFlux Preset = "Flux"
	// PresetArgoCD is for Argo CD's declared clusters: the label argocd.argoproj.io/secret-type=cluster and FormatArgoCD.
	PresetArgoCD Preset = "ArgoCD"
	// PresetSveltos is for the Secrets of SveltosClusters: names that end in -sveltos-kubeconfig, the key
	// re-kubeconfig, which Sveltos writes when it renews a token, else the first that there is. They have no label
	// in common, so a selector or namespaces have to be given.
	PresetSveltos Preset = "Sveltos"
	// PresetHive is for the Secrets of Hive's ClusterDeployments: the label hive.openshift.io/secret-type=kubeconfig and
	// the key kubeconfig.
	PresetHive Preset = "Hive"
)

// apply fills the options that are not set.
func (p Preset) apply(o *Options) error {
	var d Options
	switch p {
	case PresetMCR:
		d = Options{LabelSelector: DefaultLabelSelector, Keys: []string{DefaultKey}}
	case PresetCAPI:
		d = Options{LabelSelector: "cluster.x-k8s.io/cluster-name", NamePattern: "*-kubeconfig", Keys: []string{"value"}}
	case PresetFlux:
		d = Options{Keys: []string{"value", "value.yaml"}}
	case PresetArgoCD:
		d = Options{LabelSelector: "argocd.argoproj.io/secret-type=cluster", Format: FormatArgoCD}
	case PresetSveltos:
		d = Options{NamePattern: "*-sveltos-kubeconfig", Keys: []string{"re-kubeconfig", AnyKey}}
	case PresetHive:
		d = Options{LabelSelector: "hive.openshift.io/secret-type=kubeconfig", Keys: []string{DefaultKey}}
	default:
		return fmt.Errorf("option Preset: unknown preset %q", p)
	}
	if o.FieldSelector == "" && len(o.Names) == 0 {
		// A field selector alone is a selection, too: it would mean little if the label were wanted as well.
		o.LabelSelector = cmp.Or(o.LabelSelector, d.LabelSelector)
	}
	if len(o.Names) == 0 {
		o.NamePattern = cmp.Or(o.NamePattern, d.NamePattern)
	}
	o.Format = cmp.Or(o.Format, d.Format)
	if len(o.Keys) == 0 {
		o.Keys = d.Keys
	}
	return nil
}
