package connection

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func clone(s Spec) Spec {
	x := *s.Auth.Exec
	x.Args = append([]Secret(nil), x.Args...)
	x.Env = append([]EnvVar(nil), x.Env...)
	s.Auth.Exec = &x
	s.Auth.Impersonate.Groups = append([]string(nil), s.Auth.Impersonate.Groups...)
	s.Auth.Impersonate.Extra = map[string][]string{"scopes": append([]string(nil), s.Auth.Impersonate.Extra["scopes"]...)}
	s.Endpoint.CAData = append([]byte(nil), s.Endpoint.CAData...)
	s.Auth.ClientCertificateData = append([]byte(nil), s.Auth.ClientCertificateData...)
	return s
}

// leaves calls f with the path of every field that holds data, settable.
func leaves(path string, v reflect.Value, f func(path string, v reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[Secret]():
		f(path, v)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			leaves(path+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	case v.Kind() == reflect.Pointer:
		leaves(path, v.Elem(), f)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			leaves(fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
		f(path, v)
	default:
		f(path, v)
	}
}

// change gives a field another value.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[Secret]():
		v.Set(reflect.ValueOf(NewSecret(v.Interface().(Secret).Reveal() + "x")))
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case v.Kind() == reflect.Map:
		v.SetMapIndex(reflect.ValueOf("more"), reflect.ValueOf([]string{"x"}))
	default:
		t.Fatalf("a field of kind %s: teach the test how to change it", v.Kind())
	}
}

// TestEveryFieldCounts changes each field of a connection, also those that are added in future: equality and the right
// fingerprint change, and the other fingerprint does not.
func TestEveryFieldCounts(t *testing.T) {
	original := secretive()
	if same := clone(original); !original.Equal(same) || original.EndpointFingerprint() != same.EndpointFingerprint() ||
		original.AuthFingerprint() != same.AuthFingerprint() {
		t.Fatal("equal connections differ")
	}
	var paths []string
	all := clone(original)
	leaves("", reflect.ValueOf(&all), func(path string, _ reflect.Value) { paths = append(paths, path) })
	if len(paths) < 25 {
		t.Fatalf("found only %q", paths)
	}
	for _, chosen := range paths {
		changed := clone(original)
		leaves("", reflect.ValueOf(&changed), func(path string, v reflect.Value) {
			if path == chosen {
				change(t, v)
			}
		})
		endpoint := changed.EndpointFingerprint() != original.EndpointFingerprint()
		auth := changed.AuthFingerprint() != original.AuthFingerprint()
		if changed.Equal(original) || endpoint != strings.HasPrefix(chosen, ".Endpoint") || auth != strings.HasPrefix(chosen, ".Auth") {
			t.Errorf("%s changed: equal %t, endpoint differs %t, auth differs %t", chosen, changed.Equal(original), endpoint, auth)
		}
	}
}

func TestFingerprintsDoNotRunTogether(t *testing.T) {
	exec := func(x Exec) Fingerprint { return Spec{Auth: Auth{Exec: &x}}.AuthFingerprint() }
	a, b := NewSecret("a"), NewSecret("b")
	for name, pair := range map[string][2]Fingerprint{
		"argument or two":      {exec(Exec{Args: []Secret{NewSecret("ab")}}), exec(Exec{Args: []Secret{a, b}})},
		"argument or variable": {exec(Exec{Args: []Secret{a, b}}), exec(Exec{Env: []EnvVar{{Name: "a", Value: b}}})},
		"no plugin or empty":   {Spec{}.AuthFingerprint(), exec(Exec{})},
		"user or password":     {Spec{Auth: Auth{Username: "a"}}.AuthFingerprint(), Spec{Auth: Auth{Password: a}}.AuthFingerprint()},
		"groups or extra": {
			Spec{Auth: Auth{Impersonate: Impersonation{Groups: []string{"a", "b"}}}}.AuthFingerprint(),
			Spec{Auth: Auth{Impersonate: Impersonation{Groups: []string{"a"}, Extra: map[string][]string{"b": nil}}}}.AuthFingerprint(),
		},
		"endpoint or auth": {Spec{}.EndpointFingerprint(), Spec{}.AuthFingerprint()},
		"data by key":      {DigestOf(map[string][]byte{"a": []byte("b")}), DigestOf(map[string][]byte{"b": []byte("a")})},
		"key or data":      {DigestOf(map[string][]byte{"ab": nil}), DigestOf(map[string][]byte{"a": []byte("b")})},
		"no key or empty":  {DigestOf(nil), DigestOf(map[string][]byte{"": nil})},
	} {
		if pair[0] == pair[1] {
			t.Errorf("%s: equal fingerprints", name)
		}
	}
}

func TestMapOrderDoesNotCount(t *testing.T) {
	digests, fingerprints := make(map[Fingerprint]bool), make(map[Fingerprint]bool)
	for range 20 {
		data, extra := make(map[string][]byte), make(map[string][]string)
		for i := range 20 {
			data[fmt.Sprint(i)], extra[fmt.Sprint(i)] = []byte{byte(i)}, []string{"x"}
		}
		digests[DigestOf(data)] = true
		fingerprints[Spec{Auth: Auth{Impersonate: Impersonation{Extra: extra}}}.AuthFingerprint()] = true
	}
	if len(digests) != 1 || len(fingerprints) != 1 {
		t.Errorf("the same content has %d digests and %d fingerprints", len(digests), len(fingerprints))
	}
}

// TestFingerprintsAreKeyed shows that knowing a password's plain digest does not help to find it in a log.
func TestFingerprintsAreKeyed(t *testing.T) {
	d := newDigest(0)
	d.len(0)
	if d.sum() != DigestOf(nil) || d.sum() == Fingerprint(sha256.Sum256(d.content)) {
		t.Error("the fingerprint can be computed without the key")
	}
}

func TestSecrets(t *testing.T) {
	a, same, other := NewSecret("a"), NewSecret("a"), NewSecret("b")
	if !a.Equal(same) || a.Equal(other) || a.Equal(Secret{}) || !NewSecret("").Equal(Secret{}) || !NewSecret("").IsZero() || a.IsZero() {
		t.Error("equality of secrets is wrong")
	}
	if a.Reveal() != "a" || (Secret{}).Reveal() != "" {
		t.Error("a secret does not reveal what it was made of")
	}
}
