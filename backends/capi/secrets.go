package capi

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// clusterPlaceholder stands for a Cluster's name in Options.SecretName.
const clusterPlaceholder = "{{cluster}}"

// secretName is how the name of a kubeconfig Secret is made of a Cluster's.
type secretName struct{ prefix, suffix string }

func parseSecretName(template string) (secretName, error) {
	prefix, suffix, ok := strings.Cut(template, clusterPlaceholder)
	if !ok || strings.Contains(suffix, clusterPlaceholder) {
		return secretName{}, fmt.Errorf("%q does not contain %s once", template, clusterPlaceholder)
	}
	n := secretName{prefix, suffix}
	if problems := validation.IsDNS1123Subdomain(n.of("c")); len(problems) > 0 {
		return secretName{}, fmt.Errorf("%q makes no names of Secrets: %s", template, problems[0])
	}
	return n, nil
}

// of returns the name of a Cluster's Secret.
func (n secretName) of(cluster string) string { return n.prefix + cluster + n.suffix }

// cluster returns the Cluster whose Secret has the name; empty if it is none's.
func (n secretName) cluster(secret string) string {
	rest, ok := strings.CutPrefix(secret, n.prefix)
	if !ok {
		return ""
	}
	rest, ok = strings.CutSuffix(rest, n.suffix)
	if !ok {
		return ""
	}
	return rest
}

// secret is the view of a Secret that has a kubeconfig Secret's name.
type secret struct {
	hub.Secret
	kind   string // its type
	owners []metav1.OwnerReference
}

// secrets finds the kubeconfig Secrets of Clusters. Those that carry Cluster API's label are watched; one that lacks it is
// read by itself, as watching every Secret of a hub would bring all of its credentials here.
type secrets struct {
	name     secretName
	keys     []string
	labelled *hub.Source[secret]
	others   *hub.Lookup[secret]
}

func newSecrets(opts Options, name secretName) *secrets {
	s := &secrets{name: name, keys: opts.SecretKeys}
	s.labelled = hub.NewSource(hub.SourceOptions[secret]{
		Kind:          hub.Secrets(),
		Namespaces:    opts.Namespaces,
		LabelSelector: clusterv1.ClusterNameLabel,
		View:          s.view,
		Members: func(v secret) []string {
			return []string{v.Reference.Namespace + "/" + name.cluster(v.Reference.Name)}
		},
	})
	s.others = hub.NewLookup(hub.LookupOptions[secret]{Kind: hub.Secrets(), View: s.view})
	return s
}

func (s *secrets) view(u *unstructured.Unstructured) (secret, bool) {
	// A cluster's certificate authorities carry the label, too.
	if s.name.cluster(u.GetName()) == "" {
		return secret{}, false
	}
	kind, _, _ := unstructured.NestedString(u.Object, "type")
	return secret{Secret: hub.ViewSecret(u, s.keys...), kind: kind, owners: u.GetOwnerReferences()}, true
}

// find returns a Cluster's Secret, or why there is none, and what is odd about it.
func (s *secrets) find(member string, cl *cluster) (found secret, odd []string, hold *backends.Hold) {
	name := s.name.of(cl.Name)
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return secret{}, nil, &backends.Hold{Reason: backends.ReasonInvalidAccess, Rejected: true, Keep: true,
			Message: fmt.Sprintf("the name of %s makes one for its Secret that is longer than %d characters", cl.reference, validation.DNS1123SubdomainMaxLength)}
	}
	key := cl.Namespace + "/" + name
	found, ok := s.labelled.Get(key)
	if ok {
		s.others.Unwant(key)
	} else {
		if health := s.labelled.Unlisted(cl.Namespace); health != nil {
			return secret{}, nil, &backends.Hold{Reason: health.Reason, Message: health.Message, Keep: true}
		}
		var health backends.Health
		if found, ok, health = s.others.Want(key, member); !ok {
			return secret{}, nil, missing(key, health)
		}
		odd = append(odd, fmt.Sprintf("%s lacks the label %s, so its changes are noticed late", found.Reference, clusterv1.ClusterNameLabel))
	}
	if owner := foreignOwner(found.owners, cl); owner != "" {
		return secret{}, nil, &backends.Hold{Reason: backends.ReasonSecretNotFound, Keep: true,
			Message: fmt.Sprintf("%s belongs to %s and not to %s", found.Reference, owner, cl.reference)}
	}
	if found.kind != string(clusterv1.ClusterSecretType) {
		odd = append(odd, fmt.Sprintf("%s has the type %s instead of %s", found.Reference, found.kind, clusterv1.ClusterSecretType))
	}
	return found, odd, nil
}

func missing(key string, health backends.Health) *backends.Hold {
	hold := &backends.Hold{Reason: backends.ReasonSecretNotFound, Keep: true,
		Message: fmt.Sprintf("there is no Secret %s with the label %s", key, clusterv1.ClusterNameLabel)}
	if health.Reason == "" {
		hold.Message += ", nor one without it"
	} else {
		hold.Message += "; whether there is one without it is unknown: " + health.Message
	}
	return hold
}

// dataKey returns the first of the keys that has data; empty if none has.
func (s *secrets) dataKey(found secret) string {
	i := slices.IndexFunc(s.keys, func(key string) bool { return !found.Data[key].IsZero() })
	if i < 0 {
		return ""
	}
	return s.keys[i]
}

// forget ends what is done for a Cluster that is no member any more.
func (s *secrets) forget(namespace, cluster string) {
	s.others.Unwant(namespace + "/" + s.name.of(cluster))
}

// foreignOwner returns the object that a Secret belongs to if it is certain that the Secret is not the Cluster's: it
// belongs to another Cluster, to one that had the name before, or to another object of the kind that provides the Cluster's
// control plane or infrastructure. Names of Secrets are ambiguous: "a-user-kubeconfig" may be of Cluster "a" or of "a-user".
func foreignOwner(owners []metav1.OwnerReference, cl *cluster) string {
	for _, owner := range owners {
		foreign := false
		switch gk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(); gk {
		case clusterv1.GroupVersion.WithKind("Cluster").GroupKind():
			foreign = string(owner.UID) != cl.reference.UID
		case cl.controlPlane.groupKind():
			foreign = owner.Name != cl.controlPlane.name
		case cl.infrastructure.groupKind():
			foreign = owner.Name != cl.infrastructure.name
		}
		if foreign {
			return owner.Kind + " " + owner.Name
		}
	}
	return ""
}
