package kubeconfig

import (
	"context"
	"reflect"
	"strings"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

// The keys of the formats that are no kubeconfig.
var (
	argoCDKeys  = []string{"name", "server", "config"}
	tokenCAKeys = []string{"server", "token", "ca.crt", "caBundle"}
)

// infoOf is what reconcilers may want to know.
func infoOf(secret hub.Secret, displayName string) backends.Info {
	return backends.Info{Labels: secret.Labels, DisplayName: displayName}
}

// read returns what is wanted of a Secret's members: what was wanted, if the Secret has not changed.
func (o *Options) read(ctx context.Context, secret hub.Secret, old *readSecret) *readSecret {
	if old != nil && reflect.DeepEqual(old.secret, secret) {
		return old
	}
	r := &readSecret{secret: secret, want: map[string]wanted{}, rivals: map[string]string{}}
	if r.missing() {
		// Under its own name: what its contexts would be is not known, and those it had are gone.
		r.whole(nil, backends.Hold{Reason: backends.ReasonSecretNotFound,
			Message: secret.Reference.String() + " does not exist"})
		return r
	}
	results, missing, err := o.parse(ctx, secret)
	switch {
	case missing != "":
		// A key that was taken out is a decision, like a label that was taken off.
		r.whole(old, backends.Hold{Reason: backends.ReasonKeyNotFound,
			Message: secret.Reference.String() + " has no data under the key " + missing})
	case err != nil:
		hold := holdFor(err)
		hold.Message = secret.Reference.String() + ": " + hold.Message
		r.whole(old, hold)
	}
	for _, result := range results {
		o.add(r, result)
	}
	return r
}

// add adds a member.
func (o *Options) add(r *readSecret, result connection.ContextResult) {
	ref := r.secret.Reference
	match, _ := o.match(ref.Name)
	name := strings.NewReplacer("{{namespace}}", ref.Namespace, "{{secret}}", ref.Name, "{{match}}", match, "{{context}}", result.Name).
		Replace(o.Member)
	own := r.secret.Key()
	info := infoOf(r.secret, "")
	if o.AllContexts {
		own += "/" + result.Name
	}
	if o.AllContexts || o.Format == FormatArgoCD {
		info.DisplayName = result.Name
	}
	want := wanted{origin: r.secret.Key()}
	if _, taken := r.want[name]; taken {
		name = own
		want.hold = &backends.Hold{Reason: backends.ReasonNameConflict, Rejected: true,
			Message: "another context of " + ref.String() + " has the same name"}
	} else if result.Err != nil {
		hold := holdFor(result.Err)
		hold.Message = ref.String() + ": " + hold.Message
		want.hold = &hold
	} else {
		want.cluster = &backends.Cluster{Name: name, Connection: result.Spec, Info: info, Source: ref}
	}
	if want.hold != nil {
		want.hold.Info, want.hold.Source = info, ref
	}
	r.want[name], r.rivals[name] = want, own
}

// whole wants a hold for every member that was in the Secret, or for one in the Secret's own name if none was.
func (r *readSecret) whole(old *readSecret, hold backends.Hold) {
	hold.Info, hold.Source = infoOf(r.secret, ""), r.secret.Reference
	if old == nil || len(old.want) == 0 {
		r.want[r.secret.Key()], r.rivals[r.secret.Key()] = wanted{origin: r.secret.Key(), hold: &hold}, r.secret.Key()
		return
	}
	for name, before := range old.want {
		own := hold
		if before.cluster != nil {
			own.Info.DisplayName = before.cluster.Info.DisplayName
		} else {
			own.Info.DisplayName = before.hold.Info.DisplayName
		}
		r.want[name], r.rivals[name] = wanted{origin: r.secret.Key(), hold: &own}, old.rivals[name]
	}
}

// parse reads a Secret's data, or says which key is missing.
func (o *Options) parse(ctx context.Context, secret hub.Secret) (results []connection.ContextResult, missing string, err error) {
	value := func(key string) []byte { return []byte(secret.Data[key].Reveal()) }
	var result connection.Result
	switch o.Format {
	case FormatArgoCD:
		if secret.Data["server"].IsZero() {
			return nil, "server", nil
		}
		data := map[string][]byte{}
		for _, key := range argoCDKeys {
			data[key] = value(key)
		}
		result, err = connection.ParseArgoCD(data, o.Policy)
	case FormatTokenCA:
		for _, key := range []string{"server", "token"} {
			if secret.Data[key].IsZero() {
				return nil, key, nil
			}
		}
		ca := value("ca.crt")
		if len(ca) == 0 {
			ca = value("caBundle")
		}
		result, err = connection.FromTokenCA(string(value("server")), value("token"), ca, o.Policy)
	default:
		if len(secret.Data) == 0 {
			return nil, strings.Join(o.Keys, " or "), nil
		}
		for key := range secret.Data { // the only one
			if o.AllContexts {
				results, err = connection.ParseContexts(ctx, value(key), connection.KubeconfigOptions{Policy: o.Policy})
				return results, "", err
			}
			result, err = connection.ParseKubeconfig(ctx, value(key), connection.KubeconfigOptions{Policy: o.Policy, Context: o.Context})
		}
	}
	if err != nil {
		return nil, "", err
	}
	return []connection.ContextResult{{Result: result}}, "", nil
}
