package capi

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// clusters makes members of Clusters and their Secrets, for one run.
type clusters struct {
	opts        Options
	engager     backends.Engager
	source      *hub.Source[cluster]
	secrets     *secrets
	kubeconfigs hub.Kubeconfigs
	moves       *moves
	alarms      *hub.Alarms
}

func newClusters(opts Options, name secretName, engager backends.Engager) *clusters {
	moves := newMoves()
	return &clusters{
		opts:        opts,
		moves:       moves,
		alarms:      hub.NewAlarms(),
		engager:     engager,
		secrets:     newSecrets(opts, name),
		kubeconfigs: hub.Kubeconfigs{Policy: opts.Policy, Context: opts.Context},
		source: hub.NewSource(hub.SourceOptions[cluster]{
			Kind:          clusterKind(),
			Namespaces:    opts.Namespaces,
			LabelSelector: opts.LabelSelector,
			View: func(u *unstructured.Unstructured) (cluster, bool) {
				view := viewCluster(u)
				moves.note(view)
				return view, true
			},
			Members: func(c cluster) []string { return []string{c.Namespace + "/" + c.Name} },
		}),
	}
}

func (c *clusters) watchers() []hub.Watcher {
	return []hub.Watcher{c.source, c.secrets.labelled, c.secrets.others, c.alarms}
}

// reconcile says what is true of the member that a Cluster stands for.
func (c *clusters) reconcile(ctx context.Context, member string) {
	namespace, _, _ := strings.Cut(member, "/")
	cl, ok := c.source.Get(member)
	switch {
	case !ok && c.source.Unlisted(namespace) != nil:
	case !ok:
		c.gone(member)
	case cl.deleting && cl.moving():
		c.handOver(member, cl)
	case cl.deleting && c.opts.Deletion == DisengageAtOnce:
		c.leave(member, backends.ReasonDeleted)
	case !cl.unreadable && !c.opts.Select(cl.Cluster):
		c.leave(member, backends.ReasonDeselected)
	default:
		c.say(ctx, member, &cl)
	}
}

// gone says that a Cluster's object is gone: it was deleted, or moved to another hub.
func (c *clusters) gone(member string) {
	cl, until, ok := c.moves.gone(member, c.opts.MoveGrace)
	if !ok || !c.opts.Select(cl.Cluster) {
		c.leave(member, backends.ReasonDeleted)
		return
	}
	c.handOver(member, cl)
	c.alarms.Set(member, until)
}

// handOver says that a Cluster is being moved to another hub, which is not its end.
func (c *clusters) handOver(member string, cl cluster) {
	c.engager.Hold(member, backends.Hold{Reason: backends.ReasonMoving, Keep: true, Info: cl.info(), Source: cl.reference,
		Message: cl.reference.String() + " is being moved to another hub"})
}

// leave says that a Cluster is no member any more.
func (c *clusters) leave(member string, reason backends.Reason) {
	namespace, name, _ := strings.Cut(member, "/")
	c.kubeconfigs.Forget(member)
	c.secrets.forget(namespace, name)
	c.moves.forget(member)
	c.alarms.Set(member, time.Time{})
	c.engager.Disengage(member, reason)
}

// say says what is true of the member that an existing Cluster stands for.
func (c *clusters) say(ctx context.Context, member string, cl *cluster) {
	hold := c.unready(cl)
	var spec connection.Spec
	var odd []string
	if hold == nil {
		spec, odd, hold = c.spec(ctx, member, cl)
	}
	info := cl.info()
	if len(odd) > 0 {
		info.Properties[PropertyWarnings] = strings.Join(odd, "; ")
	}
	if hold != nil && cl.deleting && hold.Reason == backends.ReasonSecretNotFound {
		c.leave(member, backends.ReasonDeleted)
		return
	}
	if hold != nil {
		hold.Info, hold.Source = info, cl.reference
		c.engager.Hold(member, *hold)
		return
	}
	c.engager.Engage(backends.Cluster{Name: member, Connection: spec, Info: info, Source: cl.reference})
}

// unready says why a Cluster is not to be engaged now, whatever its Secret; nil if it is.
func (c *clusters) unready(cl *cluster) *backends.Hold {
	switch {
	case cl.unreadable:
		return &backends.Hold{Reason: backends.ReasonInvalidAccess, Rejected: true, Keep: true,
			Message: fmt.Sprintf("%s does not have the form of its version, %s", cl.reference, cl.reference.APIVersion)}
	case cl.Paused:
		return &backends.Hold{Reason: backends.ReasonPaused, Keep: true, Message: cl.reference.String() + " is paused"}
	case c.opts.Ready(cl.Cluster):
		return nil
	case !cl.ControlPlaneInitialized:
		return &backends.Hold{Reason: backends.ReasonControlPlaneNotInitialized, Keep: true,
			Message: "the control plane of " + cl.reference.String() + " is not initialized"}
	}
	return &backends.Hold{Reason: backends.ReasonNotReady, Keep: true, Message: cl.reference.String() + " is not ready"}
}

// spec returns how a member is reached and what is odd about that, or why it is held.
func (c *clusters) spec(ctx context.Context, member string, cl *cluster) (connection.Spec, []string, *backends.Hold) {
	found, odd, hold := c.secrets.find(member, cl)
	if hold != nil {
		return connection.Spec{}, odd, hold
	}
	key := c.secrets.dataKey(found)
	if key == "" {
		key = strings.Join(c.secrets.keys, " or ") // none of them has data
	}
	spec, hold := c.kubeconfigs.Spec(ctx, member, found.Secret, key, true)
	if hold == nil && !sameEndpoint(spec.Endpoint.Server, cl.ControlPlaneEndpoint) {
		odd = append(odd, fmt.Sprintf("%s names another server than the controlPlaneEndpoint %s of %s",
			found.Reference, cl.ControlPlaneEndpoint, cl.reference))
	}
	return spec, odd, hold
}

// sameEndpoint reports whether a kubeconfig's server has the host and port of a Cluster's endpoint, if that is known.
func sameEndpoint(server, endpoint string) bool {
	u, err := url.Parse(server)
	if err != nil || endpoint == "" {
		return true
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return strings.EqualFold(net.JoinHostPort(u.Hostname(), port), endpoint)
}
