package kubeconfig

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// troubled is how long the end of a hold waits for a hub that is away, before it is looked at again.
const troubled = 5 * time.Second

// secrets makes members of Secrets, for one run. What its loop calls a member is a Secret, "namespace/name": several
// members may be in one.
type secrets struct {
	opts    Options
	source  source
	alarms  *hub.Alarms // for Secrets whose last good connection is held for a bounded time
	members members

	read   map[string]*readSecret         // by Secret
	claims map[string]map[string]struct{} // member → Secrets that claim the name
}

// source is where Secrets come from.
type source interface {
	hub.Watcher
	// get returns a Secret that is part of the inventory. One that is waited for has a reference without a UID.
	get(key string) (hub.Secret, bool)
	// troubled reports whether what is known of a Secret may be out of date.
	troubled(key string) bool
}

// selected are the Secrets that the hub selects.
type selected struct{ *hub.Source[hub.Secret] }

func (s selected) get(key string) (hub.Secret, bool) { return s.Get(key) }

func (s selected) troubled(key string) bool {
	namespace, _, _ := strings.Cut(key, "/")
	return s.Trouble(namespace) != nil
}

// named are the Secrets that the options name.
type named struct{ *hub.Named[hub.Secret] }

func (n named) get(key string) (hub.Secret, bool) {
	secret, ok, known := n.Get(key)
	if !ok {
		namespace, name, _ := strings.Cut(key, "/")
		secret.Reference = backends.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: name}
	}
	return secret, known
}

func (n named) troubled(key string) bool { return n.Trouble(key) != nil }

// readSecret is a Secret and what is wanted of its members.
type readSecret struct {
	secret hub.Secret
	want   map[string]wanted
	rivals map[string]string // member → its name if another Secret has the first one
}

// missing reports whether the Secret is waited for.
func (r *readSecret) missing() bool { return r.secret.Reference.UID == "" }

func newSecrets(opts Options, engager backends.Engager) *secrets {
	s := &secrets{
		opts: opts, alarms: hub.NewAlarms(),
		members: members{engager: engager, holdFor: opts.HoldFor, known: map[string]*member{}},
		read:    map[string]*readSecret{}, claims: map[string]map[string]struct{}{},
	}
	if len(opts.Names) > 0 {
		s.source = named{hub.NewNamed(hub.NamedOptions[hub.Secret]{
			Kind: hub.Secrets(), Keys: opts.named(), Interval: opts.PollInterval, View: opts.view,
		})}
		return s
	}
	s.source = selected{hub.NewSource(hub.SourceOptions[hub.Secret]{
		Kind:          hub.Secrets(),
		Namespaces:    opts.Namespaces,
		LabelSelector: opts.LabelSelector,
		FieldSelector: opts.FieldSelector,
		View:          opts.view,
		Members:       func(s hub.Secret) []string { return []string{s.Key()} },
	})}
	return s
}

// view keeps the data that is needed, and nothing of a Secret whose name is not wanted.
func (o *Options) view(u *unstructured.Unstructured) (hub.Secret, bool) {
	if _, ok := o.match(u.GetName()); !ok {
		return hub.Secret{}, false
	}
	switch o.Format {
	case FormatArgoCD:
		return hub.ViewSecret(u, argoCDKeys...), true
	case FormatTokenCA:
		return hub.ViewSecret(u, tokenCAKeys...), true
	}
	for _, key := range o.keysOf(u) {
		if view := hub.ViewSecret(u, key); len(view.Data) > 0 {
			return view, true
		}
	}
	return hub.ViewSecret(u), true
}

// keysOf returns the keys that may hold the kubeconfig of a Secret, in their order.
func (o *Options) keysOf(u *unstructured.Unstructured) []string {
	if !slices.Contains(o.Keys, AnyKey) {
		return o.Keys
	}
	var keys []string
	for _, key := range o.Keys {
		if key != AnyKey {
			keys = append(keys, key)
			continue
		}
		data, _, _ := unstructured.NestedFieldNoCopy(u.Object, "data")
		if data, ok := data.(map[string]any); ok {
			var others []string
			for other := range data {
				if !slices.Contains(o.Keys, other) {
					others = append(others, other)
				}
			}
			slices.Sort(others)
			keys = append(keys, others...)
		}
	}
	return keys
}

// match returns what the * of the name pattern stands for in a Secret's name, and whether the name is wanted.
func (o *Options) match(name string) (string, bool) {
	if o.NamePattern == "" {
		return name, true
	}
	before, after, star := strings.Cut(o.NamePattern, "*")
	if !star {
		return name, name == o.NamePattern
	}
	rest, ok := strings.CutPrefix(name, before)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, after)
}

// reconcile says what is true of the members of a Secret.
func (s *secrets) reconcile(ctx context.Context, key string) {
	secret, ok := s.source.get(key)
	old := s.read[key]
	var now *readSecret
	switch {
	case ok:
		now = s.opts.read(ctx, secret, old)
		if now == old && s.source.troubled(key) {
			// It may have been repaired without the hub being able to say so.
			s.alarms.Set(key, time.Now().Add(troubled))
			return
		}
		s.read[key] = now
	case old == nil:
		return
	default:
		// Whether it was deleted or lost its label is not to be seen: a watch with a selector says deleted to both.
		delete(s.read, key)
	}
	touched := map[string]struct{}{}
	if old != nil {
		for name := range old.want {
			touched[name] = struct{}{}
			delete(s.claims[name], key)
		}
	}
	if now != nil {
		for name := range now.want {
			touched[name] = struct{}{}
			if s.claims[name] == nil {
				s.claims[name] = map[string]struct{}{}
			}
			s.claims[name][key] = struct{}{}
		}
	}
	d := decision{secrets: s, at: time.Now(), changed: key}
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		if old != nil {
			d.free(old.rivals[name], name)
		}
		d.decide(name)
	}
	s.alarms.Set(key, d.again)
}

// decision says what has become of the names that a Secret claims or has claimed.
type decision struct {
	*secrets
	at      time.Time
	changed string    // the Secret
	again   time.Time // when it is to be looked at again; zero for no time
}

func (d *decision) due(t time.Time) {
	if d.again.IsZero() || t.Before(d.again) {
		d.again = t
	}
}

// free takes a rival's name away, unless it is a claim of its own.
func (d *decision) free(rival, name string) {
	if rival != "" && rival != name && len(d.claims[rival]) == 0 {
		d.members.gone(d.at, rival, d.due)
	}
}

// decide gives a name to the oldest of the Secrets that claim it.
func (d *decision) decide(name string) {
	if len(d.claims[name]) == 0 {
		delete(d.claims, name)
		d.members.gone(d.at, name, d.due)
		return
	}
	var claims []*readSecret
	for key := range d.claims[name] {
		claims = append(claims, d.read[key])
	}
	slices.SortFunc(claims, func(a, b *readSecret) int {
		if a.missing() != b.missing() {
			if a.missing() {
				return 1
			}
			return -1
		}
		return cmp.Or(a.secret.Created.Compare(b.secret.Created), strings.Compare(a.secret.Key(), b.secret.Key()))
	})
	for i, claim := range claims {
		rival := claim.rivals[name]
		if i == 0 {
			d.free(rival, name)
			due := d.due
			if owner := claim.secret.Key(); owner != d.changed {
				due = func(time.Time) { d.alarms.Set(owner, d.at) } // it has times of its own to keep
			}
			d.members.say(d.at, name, claim.want[name], due)
		} else if rival != name && len(d.claims[rival]) == 0 {
			d.members.say(d.at, rival, wanted{origin: claim.secret.Key(), hold: &backends.Hold{
				Reason: backends.ReasonNameConflict, Rejected: true, Info: infoOf(claim.secret, ""), Source: claim.secret.Reference,
				Message: "the name " + name + " belongs to " + claims[0].secret.Reference.String()}}, d.due)
		}
	}
}
