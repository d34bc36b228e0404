package kubeconfig_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// reader makes a user of the hub who may do what the rule says, in one namespace and nowhere else.
func reader(t *testing.T, hub *hubtest.Hub, namespace string, rule rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user, err := hub.NewUser(t.Context(), "reader-of-"+namespace)
	do(t, err)
	token, err := user.Issue(t.Context())
	do(t, err)
	hub.Put(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"},
		Subjects:   []rbacv1.Subject{user.Subject()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	})
	allow(t, hub, namespace, rule)
	return token.Config()
}

// allow changes what the reader of a namespace may do, and waits until that is in force.
func allow(t *testing.T, hub *hubtest.Hub, namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	hub.Put(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"}, Rules: []rbacv1.PolicyRule{rule}})
	user := "system:serviceaccount:" + controlplane.UserNamespace + ":reader-of-" + namespace
	for _, verb := range []string{"get", "list", "watch"} {
		for _, name := range []string{"", "prod", "late"} {
			allowed := slices.Contains(rule.Verbs, verb) && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, name))
			hub.WaitAllowed(t, user, authorizationv1.ResourceAttributes{Namespace: namespace, Resource: "secrets", Verb: verb, Name: name}, allowed)
		}
	}
}

// mayRead is a rule for Secrets, those of the given names or all.
func mayRead(verbs []string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs, ResourceNames: names}
}

// A Role in the namespaces of the Secrets suffices, with list and watch for Secrets and nothing else.
func TestMinimalRole(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	config := reader(t, hub, namespace, mayRead([]string{"list", "watch"}))
	put := func(token string) {
		access := backendtest.Access{Server: "https://prod.example.com", Token: token}
		hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), map[string][]byte{"kubeconfig": access.Kubeconfig()}))
	}
	put("first")
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{Hub: config, Namespaces: []string{namespace}}))
	waitToken(t, r, namespace+"/prod", "first")
	r.WaitSynced(t)
	r.WaitHealth(t, "")
	put("second")
	waitToken(t, r, namespace+"/prod", "second")
	r.Stop(t)

	for _, verb := range []string{"list", "watch"} {
		allow(t, hub, namespace, mayRead([]string{verb}))
		r := backendtest.Start(t, newBackend(t, kubeconfig.Options{Hub: config, Namespaces: []string{namespace}}))
		r.WaitHealth(t, backends.ReasonHubForbidden)
		r.Stop(t)
	}
}

// Secrets that are named are read with nothing but the right to get them: found late, rotated, deleted, and not given up
// while they may not be read.
func TestNamedSecrets(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	get := mayRead([]string{"get"}, "prod", "late")
	put := func(name, token string) {
		access := backendtest.Access{Server: "https://prod.example.com", Token: token}
		hub.Put(t, hubtest.Secret(namespace, name, nil, map[string][]byte{"value": access.Kubeconfig()}))
	}
	put("prod", "first")
	put("other", "first")
	opts := kubeconfig.Options{
		Hub:    reader(t, hub, namespace, get),
		Preset: kubeconfig.PresetCAPI, Namespaces: []string{namespace}, Names: []string{"prod", namespace + "/late", namespace + "/prod"},
		PollInterval: 20 * time.Millisecond,
	}
	r := backendtest.Start(t, newBackend(t, opts))
	prod, late := namespace+"/prod", namespace+"/late"
	waitToken(t, r, prod, "first")
	r.WaitSynced(t)
	r.WaitHealth(t, "")
	if hold := r.WaitHeld(t, late, backends.ReasonSecretNotFound); hold.Rejected || hold.Keep {
		t.Errorf("held as %+v, want waited for", hold)
	}
	put("late", "first")
	waitToken(t, r, late, "first")
	put("prod", "second")
	waitToken(t, r, prod, "second")

	calls := len(r.Calls())
	allow(t, hub, namespace, mayRead([]string{"get"}, "prod"))
	health := r.WaitHealth(t, backends.ReasonHubForbidden)
	if !strings.Contains(health.Message, late) {
		t.Errorf("unclear which Secret may not be read: %s", health.Message)
	}
	put("prod", "third")
	waitToken(t, r, prod, "third")
	allow(t, hub, namespace, get)
	r.WaitHealth(t, "")
	for _, call := range r.Calls()[calls:] {
		if call.Name == late {
			t.Errorf("%s: %s was called because it could not be read for a while", late, call.Method)
		}
	}

	hub.Delete(t, hubtest.Secret(namespace, "late", nil, nil))
	if hold := r.WaitHeld(t, late, backends.ReasonSecretNotFound); hold.Rejected || hold.Keep {
		t.Errorf("deleted: held as %+v, want waited for", hold)
	}
	put("late", "again")
	waitToken(t, r, late, "again")
	if diff := cmp.Diff([]string{late, prod}, slices.Sorted(maps.Keys(r.Fleet().Members))); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	r.Stop(t)

	// What one has not been able to read since it began, it says nothing about.
	allow(t, hub, namespace, mayRead([]string{"get"}, "prod"))
	r = backendtest.Start(t, newBackend(t, opts))
	waitToken(t, r, prod, "third")
	r.WaitHealth(t, backends.ReasonHubForbidden)
	if f := r.Fleet(); f.Synced > 0 || len(f.Members) != 1 {
		t.Errorf("something is said about a Secret that may not be read: %s", f)
	}
}

// Contexts of a named Secret that is deleted are gone, and the Secret is waited for under its own name.
func TestNamedSecretWithSeveralContexts(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	secret := hubtest.Secret(namespace, "fleet", nil, map[string][]byte{"kubeconfig": contexts("1", "a", "b")})
	hub.Put(t, secret)
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{
		Hub: hub.Config(), Names: []string{namespace + "/fleet"}, AllContexts: true, PollInterval: 20 * time.Millisecond}))
	waitFleet(t, r, namespace+"/fleet/a", namespace+"/fleet/b")
	hub.Delete(t, secret)
	r.WaitHeld(t, namespace+"/fleet", backends.ReasonSecretNotFound)
	r.WaitDisengaged(t, namespace+"/fleet/a")
	r.WaitDisengaged(t, namespace+"/fleet/b")
	hub.Put(t, hubtest.Secret(namespace, "fleet", nil, map[string][]byte{"kubeconfig": contexts("2", "b")}))
	waitFleet(t, r, namespace+"/fleet/b")
}

// A hub that does not answer takes no named Secret away.
func TestNamedSecretsOfHubThatIsAway(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	put := func(token string) {
		access := backendtest.Access{Server: "https://prod.example.com", Token: token}
		hub.Put(t, hubtest.Secret(namespace, "prod", nil, map[string][]byte{"kubeconfig": access.Kubeconfig()}))
	}
	put("first")
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{
		Hub: hub.Config(), Names: []string{namespace + "/prod"}, PollInterval: 20 * time.Millisecond}))
	waitToken(t, r, namespace+"/prod", "first")
	calls := len(r.Calls())
	do(t, hub.StopAPIServer())
	r.WaitHealth(t, backends.ReasonHubUnreachable)
	do(t, hub.StartAPIServer(t.Context()))
	r.WaitHealth(t, "")
	put("second")
	waitToken(t, r, namespace+"/prod", "second")
	for _, call := range r.Calls()[calls:] {
		if call.Member.Held != nil || call.Member.Disengaged != "" {
			t.Errorf("%s(%s) was called because the hub was away", call.Method, call.Name)
		}
	}
}
