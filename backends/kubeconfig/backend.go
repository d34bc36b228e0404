package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
	"github.com/tributary-fleet/tributary/internal/hub"
)

const (
	// DefaultLabelSelector selects the Secrets that multicluster-runtime's kubeconfig provider reads.
	DefaultLabelSelector = "sigs.k8s.io/multicluster-runtime-kubeconfig=true"
	// DefaultKey is the key that multicluster-runtime's kubeconfig provider reads.
	DefaultKey = "kubeconfig"
	// DefaultMember is how members of Secrets are named; with AllContexts, "/{{context}}" follows.
	DefaultMember = "{{namespace}}/{{secret}}"
	// AnyKey stands in Options.Keys for all other keys of a Secret, in the order of their names.
	AnyKey = "*"
)

// Options say which Secrets are clusters.
type Options struct {
	// Hub is the API server that holds the Secrets, for instance GetLocalManager().GetConfig() of a manager. Required.
	// It needs the verbs list and watch for secrets, in the namespaces below or in all; with Names, only get for those.
	Hub *rest.Config
	// Preset fills those of the options below that are not set, by a project's convention. Default: PresetMCR.
	Preset Preset
	// Namespaces are where the Secrets are. Empty: all namespaces. One that may not be read is reported and
	// harms no other.
	Namespaces []string
	// LabelSelector and FieldSelector select the Secrets, on the server. Everything that they select is taken for a
	// cluster. If the preset has no selector, then one of Namespaces, LabelSelector and FieldSelector is required, so that
	// a hub is never asked for all its Secrets by oversight. A field selector knows metadata.name,
	// metadata.namespace and type.
	LabelSelector, FieldSelector string
	// NamePattern is what the names of the Secrets look like, where one * stands for any text: "*-kubeconfig". It is
	// applied to what the server has selected. Default: any name.
	NamePattern string
	// Names are the Secrets by name: "namespace/name", or "name" for one in each of Namespaces. They are read one by one
	// every PollInterval, for hubs that allow neither list nor watch. One that is not there is waited for. Names
	// exclude the selectors, and the selector and name pattern of the preset do not apply to them.
	Names []string
	// PollInterval is the time between two reads of each of Names. Default: 10s.
	PollInterval time.Duration
	// Format is what the Secrets hold. Default: FormatKubeconfig.
	Format Format
	// Keys are the keys of a Secret's data that may hold the kubeconfig: the first that is there and not empty
	// does, so a kubeconfig that moves to another key is followed. While none is, the cluster is waited for. Not for
	// other formats, whose keys are given.
	Keys []string
	// Context is the context of the kubeconfigs that is a cluster. Default: the current one, or the only one.
	Context string
	// AllContexts makes every context a cluster of its own. It excludes Context.
	AllContexts bool
	// Member is how a member is named, where {{namespace}} and {{secret}} are those of the Secret, {{match}} is what the *
	// of NamePattern stands for, and {{context}} is the context, or the name of an Argo CD cluster. Default:
	// DefaultMember. Of two that come out the same, that of the older Secret has the name, and the other is rejected
	// under namespace, Secret and context.
	Member string
	// Policy is what kubeconfigs have to conform to. The zero value is strict, as data of others should be treated.
	Policy connection.Policy
	// HoldFor is how long the last good connection is held when a Secret's data becomes unusable. Default:
	// DefaultHoldFor. Negative: not at all. What policy refuses is never held, nor is what is gone.
	HoldFor time.Duration
}

// Format is what a Secret holds.
type Format string

// The formats of Secrets.
const (
	// FormatKubeconfig is a kubeconfig under one of Options.Keys.
	FormatKubeconfig Format = "Kubeconfig"
	// FormatArgoCD is what Argo CD declares clusters with: the keys name, server and config.
	FormatArgoCD Format = "ArgoCD"
	// FormatTokenCA is a bearer token under the key token, a CA in PEM under ca.crt or caBundle, if any, and the URL of the
	// API server under server.
	FormatTokenCA Format = "TokenCA"
)

func (o *Options) setDefaults() error {
	if o.Preset == "" {
		o.Preset = PresetMCR
	}
	if err := o.Preset.apply(o); err != nil {
		return err
	}
	o.Format = cmp.Or(o.Format, FormatKubeconfig)
	if len(o.Keys) == 0 {
		o.Keys = []string{DefaultKey}
	}
	if o.Member == "" {
		o.Member = DefaultMember
		if o.AllContexts {
			o.Member += "/{{context}}"
		}
	}
	o.HoldFor = cmp.Or(o.HoldFor, DefaultHoldFor)
	o.PollInterval = cmp.Or(o.PollInterval, defaultPoll)
	return nil
}

func (o *Options) check() error {
	switch o.Format {
	case FormatKubeconfig, FormatArgoCD, FormatTokenCA:
	default:
		return fmt.Errorf("option Format: unknown format %q", o.Format)
	}
	if slices.Contains(o.Namespaces, "") {
		return errors.New("option Namespaces holds an empty name")
	}
	if slices.Contains(o.Keys, "") {
		return errors.New("option Keys holds an empty key")
	}
	if err := o.checkNames(); err != nil {
		return fmt.Errorf("option Names: %w", err)
	}
	if o.PollInterval < 0 {
		return errors.New("option PollInterval is negative")
	}
	if len(o.Names) == 0 && o.LabelSelector == "" && o.FieldSelector == "" && len(o.Namespaces) == 0 {
		return fmt.Errorf("the preset %s has no selector: one of the options Namespaces, LabelSelector, FieldSelector and Names is needed", o.Preset)
	}
	if _, err := labels.Parse(o.LabelSelector); err != nil {
		return fmt.Errorf("option LabelSelector: %w", err)
	}
	if _, err := fields.ParseSelector(o.FieldSelector); err != nil {
		return fmt.Errorf("option FieldSelector: %w", err)
	}
	if strings.Count(o.NamePattern, "*") > 1 {
		return errors.New("option NamePattern has more than one *")
	}
	if o.AllContexts && o.Context != "" {
		return errors.New("options Context and AllContexts exclude each other")
	}
	if o.Format != FormatKubeconfig && (o.AllContexts || o.Context != "") {
		return fmt.Errorf("options Context and AllContexts mean nothing for the format %s", o.Format)
	}
	if err := checkMember(o.Member, "{{namespace}}", "{{secret}}", "{{match}}", "{{context}}"); err != nil {
		return fmt.Errorf("option Member: %w", err)
	}
	return nil
}

// checkNames refuses names that name no Secret, or that the other options leave nothing of.
func (o *Options) checkNames() error {
	if len(o.Names) == 0 {
		return nil
	}
	if o.LabelSelector != "" || o.FieldSelector != "" {
		return errors.New("names and selectors exclude each other")
	}
	for _, name := range o.Names {
		namespace, base, qualified := strings.Cut(name, "/")
		if !qualified {
			base = name
			if len(o.Namespaces) == 0 {
				return fmt.Errorf("%q has no namespace, and the option Namespaces has none either", name)
			}
		}
		if base == "" || strings.Contains(base, "/") || qualified && namespace == "" {
			return fmt.Errorf("%q is neither \"namespace/name\" nor \"name\"", name)
		}
		if _, ok := o.match(base); !ok {
			return fmt.Errorf("%q does not match the option NamePattern", name)
		}
	}
	return nil
}

// named returns the Secrets that Names stand for, each "namespace/name", sorted.
func (o *Options) named() []string {
	var keys []string
	for _, name := range o.Names {
		if strings.Contains(name, "/") {
			keys = append(keys, name)
			continue
		}
		for _, namespace := range o.Namespaces {
			keys = append(keys, namespace+"/"+name)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Backend is the inventory of kubeconfigs in Secrets.
type Backend struct {
	opts Options
	hub  *hub.Client
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend, or an error if the options are unusable. It makes no request.
func New(opts Options) (*Backend, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, fmt.Errorf("kubeconfig backend: %w", err)
	}
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("kubeconfig backend: %w", err)
	}
	client, err := hub.Connect(opts.Hub)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig backend: %w", err)
	}
	return &Backend{opts: opts, hub: client}, nil
}

// Run implements backends.Backend. It returns nil when ctx ends, and never otherwise.
func (b *Backend) Run(ctx context.Context, engager backends.Engager) error {
	secrets := newSecrets(b.opts, engager)
	loop := hub.Loop{
		Sources:   []hub.Watcher{secrets.source, secrets.alarms},
		Reconcile: secrets.reconcile,
		Engager:   engager,
	}
	loop.Run(ctx, b.hub)
	return nil
}
