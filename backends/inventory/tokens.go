package inventory

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

const (
	// tokenKey is the key that the plugin secretreader reads.
	tokenKey = "token"
	// tokenPrefix marks what a token Secret concerns, which only profiles can tell. No namespace has such a name.
	tokenPrefix = ":"
)

// TokenSecrets are Secrets with bearer tokens, as the plugin secretreader of the Cluster Inventory API reads them, but read
// without a plugin and watched: a profile's access provider names a cluster in its extension
// client.authentication.k8s.io/exec, {"clusterName": …}, and the token is under the key token of the Secret of that
// name. Whoever may write profiles decides which of these tokens is sent to which server, so the namespace should hold
// no other Secrets.
type TokenSecrets struct {
	// Providers are the names of the configured access providers whose tokens are read so. Their plugins are not run.
	// Required.
	Providers []string
	// Namespace is where the Secrets are. It needs the verbs list and watch for secrets there. Required.
	Namespace string
}

func (t *TokenSecrets) validate() error {
	if t != nil && (t.Namespace == "" || len(t.Providers) == 0 || slices.Contains(t.Providers, "")) {
		return errors.New("option TokenSecrets has no namespace, no provider, or one without a name")
	}
	return nil
}

// tokens finds the token for a profile. It is for one goroutine.
type tokens struct {
	opts   TokenSecrets
	source *hub.Source[hub.Secret]
	users  map[string]map[string]bool // cluster's name → members that want its token
	wants  map[string]string          // member → cluster's name
}

func newTokens(opts TokenSecrets) *tokens {
	return &tokens{
		opts: opts, users: map[string]map[string]bool{}, wants: map[string]string{},
		source: hub.NewSource(hub.SourceOptions[hub.Secret]{
			Kind:       hub.Secrets(),
			Namespaces: []string{opts.Namespace},
			View:       func(u *unstructured.Unstructured) (hub.Secret, bool) { return hub.ViewSecret(u, tokenKey), true },
			Members:    func(s hub.Secret) []string { return []string{tokenPrefix + s.Reference.Name} },
		}),
	}
}

// membersOf returns the members that want the token of a cluster.
func (t *tokens) membersOf(cluster string) []string {
	return slices.Sorted(maps.Keys(t.users[cluster]))
}

// want notes which cluster's token a member wants; empty: none.
func (t *tokens) want(member, cluster string) {
	if before := t.wants[member]; before != cluster {
		delete(t.users[before], member)
		if len(t.users[before]) == 0 {
			delete(t.users, before)
		}
	}
	if cluster == "" {
		delete(t.wants, member)
		return
	}
	t.wants[member] = cluster
	if t.users[cluster] == nil {
		t.users[cluster] = map[string]bool{}
	}
	t.users[cluster][member] = true
}

// get returns a cluster's token, or why there is none.
func (t *tokens) get(cluster string) (connection.Secret, *backends.Hold) {
	hold := &backends.Hold{Keep: true}
	if cluster == "" {
		hold.Reason, hold.Rejected = backends.ReasonInvalidAccess, true
		hold.Message = "the extension client.authentication.k8s.io/exec of the access provider has no clusterName"
		return connection.Secret{}, hold
	}
	secret, ok := t.source.Get(t.opts.Namespace + "/" + cluster)
	if !ok {
		if unlisted := t.source.Unlisted(); unlisted != nil {
			hold.Reason, hold.Message = unlisted.Reason, unlisted.Message
			return connection.Secret{}, hold
		}
		hold.Reason, hold.Message = backends.ReasonSecretNotFound, fmt.Sprintf("there is no Secret %s/%s", t.opts.Namespace, cluster)
		return connection.Secret{}, hold
	}
	token := secret.Data[tokenKey]
	if token.IsZero() {
		hold.Reason, hold.Message = backends.ReasonKeyNotFound, secret.Reference.String()+" has no data under the key "+tokenKey
		return connection.Secret{}, hold
	}
	return token, nil
}
