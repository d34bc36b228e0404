package capi

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// The kubeconfig Secret's name and key, from Cluster API's control plane provider contract.
const (
	secretSuffix = "-kubeconfig"
	secretKey    = "value"
)

// clusters makes members of Clusters and their Secrets, for one run.
type clusters struct {
	engager     backends.Engager
	source      *hub.Source[cluster]
	secrets     *hub.Source[hub.Secret]
	kubeconfigs hub.Kubeconfigs
}

func newClusters(opts Options, engager backends.Engager) *clusters {
	return &clusters{
		engager:     engager,
		kubeconfigs: hub.Kubeconfigs{Policy: opts.Policy},
		source: hub.NewSource(hub.SourceOptions[cluster]{
			Kind:          clusterKind(),
			Namespaces:    opts.Namespaces,
			LabelSelector: opts.LabelSelector,
			View:          func(u *unstructured.Unstructured) (cluster, bool) { return viewCluster(u), true },
			Members:       func(c cluster) []string { return []string{c.reference.Namespace + "/" + c.reference.Name} },
		}),
		secrets: hub.NewSource(hub.SourceOptions[hub.Secret]{
			Kind:          hub.Secrets(),
			Namespaces:    opts.Namespaces,
			LabelSelector: clusterv1.ClusterNameLabel,
			View: func(u *unstructured.Unstructured) (hub.Secret, bool) {
				// A cluster's certificate authorities carry the label, too.
				return hub.ViewSecret(u, secretKey), strings.HasSuffix(u.GetName(), secretSuffix)
			},
			Members: func(s hub.Secret) []string { return []string{strings.TrimSuffix(s.Key(), secretSuffix)} },
		}),
	}
}

// reconcile says what is true of the member that a Cluster stands for.
func (c *clusters) reconcile(ctx context.Context, member string) {
	namespace, _, _ := strings.Cut(member, "/")
	cl, ok := c.source.Get(member)
	if !ok && c.source.Unlisted(namespace) != nil {
		return
	}
	if !ok || cl.deleting {
		c.kubeconfigs.Forget(member)
		c.engager.Disengage(member, backends.ReasonDeleted)
		return
	}
	hold := func(h backends.Hold) {
		h.Info, h.Source = cl.info(), cl.reference
		c.engager.Hold(member, h)
	}
	switch {
	case cl.unreadable:
		hold(backends.Hold{Reason: backends.ReasonInvalidAccess, Rejected: true, Keep: true,
			Message: fmt.Sprintf("%s does not have the form of its version, %s", cl.reference, cl.reference.APIVersion)})
		return
	case cl.Paused:
		hold(backends.Hold{Reason: backends.ReasonPaused, Keep: true, Message: cl.reference.String() + " is paused"})
		return
	case !cl.ControlPlaneInitialized:
		hold(backends.Hold{Reason: backends.ReasonControlPlaneNotInitialized, Keep: true,
			Message: "the control plane of " + cl.reference.String() + " is not initialized"})
		return
	}
	secret, ok := c.secrets.Get(member + secretSuffix)
	if !ok {
		hold(c.withoutSecret(namespace, member))
		return
	}
	spec, h := c.kubeconfigs.Spec(ctx, member, secret, secretKey, true)
	if h != nil {
		hold(*h)
		return
	}
	c.engager.Engage(backends.Cluster{Name: member, Connection: spec, Info: cl.info(), Source: cl.reference})
}

// withoutSecret says why a member has no Secret: there is none, or it is not known whether there is.
func (c *clusters) withoutSecret(namespace, member string) backends.Hold {
	if health := c.secrets.Unlisted(namespace); health != nil {
		return backends.Hold{Reason: health.Reason, Message: health.Message, Keep: true}
	}
	return backends.Hold{Reason: backends.ReasonSecretNotFound, Keep: true,
		Message: fmt.Sprintf("there is no Secret %s%s with the label %s", member, secretSuffix, clusterv1.ClusterNameLabel)}
}
