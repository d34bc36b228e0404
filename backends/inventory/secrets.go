package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// Labels and key of Secrets for consumers, from KEP-4322.
const (
	consumerLabel         = "x-k8s.io/cluster-inventory-consumer"
	profileLabel          = "x-k8s.io/cluster-profile"
	profileNamespaceLabel = "x-k8s.io/cluster-profile-namespace"
	defaultNamespace      = "default"
	secretKey             = "Config"
)

// secrets finds the Secret for a profile.
type secrets struct {
	consumer string
	source   *hub.Source[hub.Secret]
	// namespaces are those that carry the consumer's label. Nil if they are given instead, as the set of granted.
	namespaces *hub.Source[string]
	granted    map[string]bool
}

func newSecrets(opts Options) *secrets {
	s := &secrets{consumer: opts.Consumer, granted: map[string]bool{}}
	var watched []string // all
	if len(opts.Namespaces) > 0 {
		watched = slices.Concat(opts.Namespaces, opts.ConsumerNamespaces)
		for _, namespace := range opts.ConsumerNamespaces {
			s.granted[namespace] = true
		}
	} else {
		s.namespaces = hub.NewSource(hub.SourceOptions[string]{
			Kind:          hub.Kind{Resource: "namespaces", Versions: []string{"v1"}, BuiltIn: true},
			LabelSelector: consumerLabel + "=" + opts.Consumer,
			View:          func(u *unstructured.Unstructured) (string, bool) { return u.GetName(), true },
			Members:       func(name string) []string { return []string{name} },
		})
	}
	s.source = hub.NewSource(hub.SourceOptions[hub.Secret]{
		Kind:          hub.Secrets(),
		Namespaces:    watched,
		LabelSelector: profileLabel,
		View:          func(u *unstructured.Unstructured) (hub.Secret, bool) { return hub.ViewSecret(u, secretKey), true },
		Members:       claims,
	})
	return s
}

func (s *secrets) watchers() []hub.Watcher {
	if s.namespaces == nil {
		return []hub.Watcher{s.source}
	}
	return []hub.Watcher{s.source, s.namespaces}
}

// claims returns the profiles that a Secret may be for, in either reading.
func claims(secret hub.Secret) []string {
	own, kep := secretReading(secret), namespaceReading(secret)
	if own == kep {
		return []string{own}
	}
	return []string{own, kep}
}

// namespaceReading is the profile of a Secret whose namespace carries the consumer's label.
func namespaceReading(secret hub.Secret) string {
	return cmp.Or(secret.Labels[profileNamespaceLabel], defaultNamespace) + "/" + secret.Labels[profileLabel]
}

// secretReading is the profile of a Secret that carries the consumer's label itself.
func secretReading(secret hub.Secret) string {
	return secret.Reference.Namespace + "/" + secret.Labels[profileLabel]
}

// forProfile returns the Secret for a profile: the oldest, where there are several.
func (s *secrets) forProfile(profile string) (hub.Secret, bool) {
	var found hub.Secret
	ok := false
	for _, secret := range s.source.ForMember(profile) {
		if s.isFor(secret, profile) && (!ok || secret.Created.Before(found.Created)) {
			found, ok = secret, true
		}
	}
	return found, ok
}

func (s *secrets) isFor(secret hub.Secret, profile string) bool {
	switch consumer, labelled := secret.Labels[consumerLabel]; {
	case labelled && consumer != s.consumer:
		return false // a Secret is for one consumer
	case labelled && secretReading(secret) == profile:
		elsewhere, ok := secret.Labels[profileNamespaceLabel]
		if !ok || elsewhere == secret.Reference.Namespace {
			return true
		}
	}
	return namespaceReading(secret) == profile && s.grants(secret.Reference.Namespace)
}

// grants reports whether all Secrets of a namespace are for the consumer.
func (s *secrets) grants(namespace string) bool {
	if s.namespaces == nil {
		return s.granted[namespace]
	}
	_, ok := s.namespaces.Get(namespace)
	return ok
}

// missing says why a profile has no Secret: there is none, or it is not known whether there is.
func (s *secrets) missing(profile string) backends.Hold {
	unlisted := s.source.Unlisted()
	if unlisted == nil && s.namespaces != nil {
		unlisted = s.namespaces.Unlisted()
	}
	if unlisted != nil {
		return backends.Hold{Reason: unlisted.Reason, Message: unlisted.Message, Keep: true}
	}
	_, name, _ := strings.Cut(profile, "/")
	return backends.Hold{Reason: backends.ReasonNoAccess, Keep: true, Message: fmt.Sprintf(
		"there is no Secret for ClusterProfile %s and consumer %q: none with the label %s=%s",
		profile, s.consumer, profileLabel, name)}
}
