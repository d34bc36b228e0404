package kubeconfig_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/backends/backendtest"
	"github.com/tributary-fleet/tributary/backends/kubeconfig"
	"github.com/tributary-fleet/tributary/internal/hub/hubtest"
)

// onlyConcern checks that a change concerned one member and no other.
func onlyConcern(t *testing.T, calls []backendtest.Call, member string) {
	t.Helper()
	for _, call := range calls {
		if call.Name != "" && call.Name != member {
			t.Errorf("%s(%s) was called though only %s has changed", call.Method, call.Name, member)
		}
	}
}

// A token and a CA under keys of their own are a cluster as well.
func TestTokenCA(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	put := func(data map[string][]byte) { hub.Put(t, hubtest.Secret(namespace, "prod", nil, data)) }
	server := []byte("https://prod.example.com")
	put(map[string][]byte{"server": server, "token": []byte("first")})
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{
		Hub: hub.Config(), Format: kubeconfig.FormatTokenCA, FieldSelector: "metadata.name=prod", Namespaces: []string{namespace}}))
	member := namespace + "/prod"
	waitToken(t, r, member, "first")
	put(map[string][]byte{"server": server, "token": []byte("second")})
	waitToken(t, r, member, "second")

	for _, key := range []string{"ca.crt", "caBundle"} {
		put(map[string][]byte{"server": server, "token": []byte("second"), key: []byte("no PEM")})
		if hold := r.WaitHeld(t, member, backends.ReasonInvalidKubeconfig); !hold.Keep || !hold.Rejected {
			t.Errorf("%s is no PEM: held as %+v, want rejected and kept", key, hold)
		}
		put(map[string][]byte{"server": server, "token": []byte("second")})
		waitToken(t, r, member, "second")
	}
	put(map[string][]byte{"server": server})
	if hold := r.WaitHeld(t, member, backends.ReasonKeyNotFound); hold.Keep || hold.Rejected {
		t.Errorf("without a token: held as %+v, want waited for, and not kept", hold)
	}
	put(map[string][]byte{"server": []byte("http://prod.example.com"), "token": []byte("third")})
	if hold := r.WaitHeld(t, member, backends.ReasonPolicyViolation); hold.Keep || !hold.Rejected {
		t.Errorf("plain HTTP: held as %+v, want rejected and not kept", hold)
	}
}

// Every context of a Secret is a cluster of its own, and its trouble is its own.
func TestContextsOfSecret(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	put := func(data []byte) {
		hub.Put(t, hubtest.Secret(namespace, "fleet", mcrLabels(), map[string][]byte{"kubeconfig": data}))
	}
	put(contexts("1", "a", "b", "c"))
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{Hub: hub.Config(), Namespaces: []string{namespace}, AllContexts: true}))
	a, b, c := namespace+"/fleet/a", namespace+"/fleet/b", namespace+"/fleet/c"
	waitFleet(t, r, a, b, c)
	for _, member := range []string{"a", "b", "c"} {
		waitToken(t, r, namespace+"/fleet/"+member, member+"-1")
	}

	calls := len(r.Calls())
	put(bytes.ReplaceAll(contexts("1", "a", "b", "c"), []byte("https://b."), []byte("b.")))
	r.Wait(t, "the context without a scheme is rejected", func(f backendtest.Fleet) bool {
		held := f.Members[b].Held
		return held != nil && held.Rejected
	})
	put(contexts("1", "a", "b", "c"))
	waitToken(t, r, b, "b-1")
	onlyConcern(t, r.Calls()[calls:], b)

	calls = len(r.Calls())
	put(contexts("1", "a", "b"))
	r.WaitDisengaged(t, c)
	onlyConcern(t, r.Calls()[calls:], c)
}

// A kubeconfig that moves to another key is followed, and the cluster stays engaged.
func TestKubeconfigMovesToAnotherKey(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	put := func(key, token string) {
		access := backendtest.Access{Server: "https://prod.example.com", Token: token}
		hub.Put(t, hubtest.Secret(namespace, "prod", nil, map[string][]byte{key: access.Kubeconfig(), "unrelated": {}}))
	}
	put("value", "first")
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{
		Hub: hub.Config(), Preset: kubeconfig.PresetFlux, FieldSelector: "metadata.name=prod", Namespaces: []string{namespace}}))
	waitToken(t, r, namespace+"/prod", "first")
	calls := len(r.Calls())
	put("value.yaml", "second")
	waitToken(t, r, namespace+"/prod", "second")
	put("value", "third")
	waitToken(t, r, namespace+"/prod", "third")
	for _, call := range r.Calls()[calls:] {
		if call.Member.Held != nil || call.Member.Disengaged != "" {
			t.Errorf("%s(%s) was called because of a key", call.Method, call.Name)
		}
	}
}

// Of two Secrets that claim a name, the older has it, and the other gets it when the older goes.
func TestSecretsNameConflict(t *testing.T) {
	hub := startHub(t)
	first, second := hub.Namespace(t, nil), hub.Namespace(t, nil)
	secret := func(namespace, token string) {
		access := backendtest.Access{Server: "https://prod.example.com", Token: token}
		hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), map[string][]byte{"kubeconfig": access.Kubeconfig()}))
	}
	secret(second, "older")
	hub.NextSecond(t, hubtest.Secret(second, "prod", nil, nil))
	secret(first, "younger")
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{
		Hub: hub.Config(), Namespaces: []string{first, second}, Member: "{{secret}}"}))
	if hold := r.WaitHeld(t, first+"/prod", backends.ReasonNameConflict); !hold.Rejected || hold.Keep {
		t.Errorf("the younger is held as %+v, want rejected", hold)
	}
	waitToken(t, r, "prod", "older")
	hub.Delete(t, hubtest.Secret(second, "prod", nil, nil))
	waitToken(t, r, "prod", "younger")
	r.WaitDisengaged(t, first+"/prod")
}

// The last good connection of a Secret that becomes unusable is held for as long as the options say.
func TestHoldForOfSecrets(t *testing.T) {
	hub := startHub(t)
	for _, holdFor := range []time.Duration{-1, time.Second} {
		t.Run(fmt.Sprint("for ", holdFor), func(t *testing.T) {
			namespace := hub.Namespace(t, nil)
			put := func(data []byte) {
				hub.Put(t, hubtest.Secret(namespace, "prod", mcrLabels(), map[string][]byte{"kubeconfig": data}))
			}
			put(contexts("1", "c"))
			r := backendtest.Start(t, newBackend(t, kubeconfig.Options{
				Hub: hub.Config(), Namespaces: []string{namespace}, HoldFor: holdFor}))
			waitToken(t, r, namespace+"/prod", "c-1")
			r.WaitSynced(t)
			calls := len(r.Calls())
			put([]byte("rubbish"))
			r.Wait(t, "the hold ends", func(f backendtest.Fleet) bool {
				held := f.Members[namespace+"/prod"].Held
				return held != nil && held.Rejected && !held.Keep && held.Reason == backends.ReasonInvalidKubeconfig
			})
			var kept []bool
			for _, call := range r.Calls()[calls:] {
				if call.Member.Held != nil {
					kept = append(kept, call.Member.Held.Keep)
				}
			}
			want := []bool{true, false}
			if holdFor < 0 {
				want = want[1:]
			}
			if diff := cmp.Diff(want, kept); diff != "" {
				t.Errorf("what the holds kept (-want +got):\n%s", diff)
			}
			put(contexts("2", "c"))
			waitToken(t, r, namespace+"/prod", "c-2")
		})
	}
}

// Of 20 Secrets, the state of that one changes which is broken or repaired.
func TestOneOfTwentySecretsIsBroken(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	name := func(i int) string { return fmt.Sprintf("c%02d", i) }
	put := func(i int, data []byte) {
		hub.Put(t, hubtest.Secret(namespace, name(i), mcrLabels(), map[string][]byte{"kubeconfig": data}))
	}
	const broken = 7
	var members []string
	for i := range 20 {
		if i == broken {
			put(i, backendtest.BrokenKubeconfig())
			continue
		}
		put(i, contexts("1", name(i)))
		members = append(members, namespace+"/"+name(i))
	}
	r := backendtest.Start(t, newBackend(t, kubeconfig.Options{Hub: hub.Config(), Namespaces: []string{namespace}}))
	r.WaitHeld(t, namespace+"/"+name(broken), backends.ReasonInvalidKubeconfig)
	for _, member := range members {
		r.WaitEngaged(t, member)
	}
	r.WaitSynced(t)

	calls := len(r.Calls())
	put(broken, contexts("1", name(broken)))
	r.WaitEngaged(t, namespace+"/"+name(broken))
	onlyConcern(t, r.Calls()[calls:], namespace+"/"+name(broken))

	calls = len(r.Calls())
	put(12, backendtest.BrokenKubeconfig())
	r.WaitHeld(t, namespace+"/"+name(12), backends.ReasonInvalidKubeconfig)
	onlyConcern(t, r.Calls()[calls:], namespace+"/"+name(12))
}

// What has lost its label or key while the process was down is not engaged by the next one, which says so by Synced.
func TestGoneWhileDown(t *testing.T) {
	hub := startHub(t)
	namespace := hub.Namespace(t, nil)
	for _, name := range []string{"stays", "label", "key", "deleted"} {
		hub.Put(t, hubtest.Secret(namespace, name, mcrLabels(), map[string][]byte{"kubeconfig": access().Kubeconfig()}))
	}
	backend := newBackend(t, kubeconfig.Options{Hub: hub.Config(), Namespaces: []string{namespace}})
	stays, label, key, deleted := namespace+"/stays", namespace+"/label", namespace+"/key", namespace+"/deleted"
	r := backendtest.Start(t, backend)
	waitFleet(t, r, stays, label, key, deleted)
	r.Stop(t)

	hub.Label(t, hubtest.Secret(namespace, "label", nil, nil), map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": ""})
	hub.Put(t, hubtest.Secret(namespace, "key", mcrLabels(), map[string][]byte{"other": []byte("x")}))
	hub.Delete(t, hubtest.Secret(namespace, "deleted", nil, nil))
	r = backendtest.Start(t, backend)
	r.WaitSynced(t)
	if hold := r.WaitHeld(t, key, backends.ReasonKeyNotFound); hold.Keep {
		t.Errorf("without its key: held as %+v, want not kept", hold)
	}
	r.WaitEngaged(t, stays)
	f := r.Fleet()
	for _, member := range []string{label, deleted} {
		if m, ok := f.Members[member]; ok && m.Disengaged == "" {
			t.Errorf("%s is still a member: %s", member, m)
		}
	}
}
