package hub

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/backends"
)

var testConfig = rest.Config{Host: "https://hub.example.com"}

func TestViewSecretKeepsOnlyWhatIsWanted(t *testing.T) {
	const credential = "CREDENTIAL"
	encoded := base64.StdEncoding.EncodeToString([]byte(credential))
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{
			"namespace": "n", "name": "s", "uid": "u", "labels": map[string]any{"l": "1"},
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": encoded, "note": "x"},
		},
		"data": map[string]any{"wanted": encoded, "other": encoded, "empty": ""},
	}}
	source := NewSource(SourceOptions[Secret]{Kind: Secrets(), View: func(u *unstructured.Unstructured) (Secret, bool) {
		return ViewSecret(u, "wanted", "empty", "absent"), true
	}})
	secret := *reflected[Secret]{&namespaceWatch[Secret]{source: source}}.view(u)
	if got := secret.Data["wanted"].Reveal(); got != credential || len(secret.Data) != 1 {
		t.Errorf("data is %q under %d keys, want one with %q", got, len(secret.Data), credential)
	}
	// Annotations are no part of the view: kubectl and others keep whole copies of an object in them.
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", secret, secret, secret), secret.Reference.String()} {
		if strings.Contains(text, credential) || strings.Contains(text, encoded) {
			t.Errorf("a formatted Secret shows its data: %s", text)
		}
	}
}

func TestHealthOf(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	refused := &url.Error{Op: "Get", URL: "https://user:CREDENTIAL@hub", Err: fmt.Errorf("read 127.0.0.1:41999: %w", syscall.ECONNREFUSED)}
	tests := map[string]struct {
		err         error
		wantReason  backends.Reason
		wantMessage string
	}{
		"no error":          {nil, "", ""},
		"missing kind":      {errNotServed, backends.ReasonKindNotServed, "list x: the hub does not serve this kind"},
		"not found":         {apierrors.NewNotFound(secrets, ""), backends.ReasonKindNotServed, "list x: the hub does not serve this kind"},
		"forbidden":         {apierrors.NewForbidden(secrets, "", errors.New("no role")), backends.ReasonHubForbidden, "list x: secrets is forbidden: no role"},
		"unauthorized":      {apierrors.NewUnauthorized("Unauthorized"), backends.ReasonHubForbidden, "list x: Unauthorized"},
		"refused":           {refused, backends.ReasonHubUnreachable, "list x: connection refused"},
		"a deadline":        {&url.Error{Op: "Get", URL: "https://hub", Err: context.DeadlineExceeded}, backends.ReasonHubUnreachable, "list x: no answer in time"},
		"something else":    {fmt.Errorf("get: %w", errors.New("odd")), backends.ReasonHubUnreachable, "list x: odd"},
		"an unready server": {apierrors.NewServiceUnavailable("starting"), backends.ReasonHubUnreachable, "list x: starting"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := backends.Health{Reason: test.wantReason, Message: test.wantMessage}
			if diff := cmp.Diff(want, healthOf("list x", test.err)); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStore(t *testing.T) {
	type view struct{ member, data string }
	members := func(views []view) (out []string) {
		for _, v := range views {
			out = append(out, v.member)
		}
		return out
	}
	s := newStore(func(v view) []string { return strings.Split(v.member, ",") })
	steps := []struct {
		name string
		do   func() []string
		want []string
	}{
		{"an object is new", func() []string { return s.set("n/a", &view{"x", "1"}) }, []string{"x"}},
		{"an equal one changes nothing", func() []string { return s.set("n/a", &view{"x", "1"}) }, nil},
		{"other data", func() []string { return s.set("n/a", &view{"x", "2"}) }, []string{"x", "x"}},
		{"another member concerns the old one, too", func() []string { return s.set("n/a", &view{"y,z", "2"}) }, []string{"x", "y", "z"}},
		{"the first member has none left", func() []string { return members(s.forMember("x")) }, nil},
		{"the others have it", func() []string { return members(s.forMember("z")) }, []string{"y,z"}},
		{"a second object", func() []string { return s.set("m/b", &view{"z", ""}) }, []string{"z"}},
		{"objects of a member are in order", func() []string { return members(s.forMember("z")) }, []string{"z", "y,z"}},
		{"a list of one namespace", func() []string { return s.replace("n", map[string]*view{"n/c": {"w", ""}}) }, []string{"w", "y", "z"}},
		{"leaves the others alone", func() []string { return s.allMembers() }, []string{"w", "z"}},
		{"a list of everything", func() []string { return s.replace("", nil) }, []string{"w", "z"}},
		{"deleting what is not there", func() []string { return s.set("n/a", nil) }, nil},
		{"nothing is left", func() []string { return s.allMembers() }, nil},
	}
	for _, step := range steps {
		if diff := cmp.Diff(step.want, step.do()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
