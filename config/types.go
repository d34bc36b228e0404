package config

import (
	"net/netip"
	"time"
)

// APIVersion and Kind are what a fleet file begins with.
const (
	APIVersion = "config.tributary.dev/v1alpha1"
	Kind       = "Fleet"
)

// The kinds of backends that every [Registry] has.
const (
	KindClusterProfiles   = "ClusterProfiles"   // package backends/inventory
	KindClusterAPI        = "ClusterAPI"        // package backends/capi
	KindKubeconfigSecrets = "KubeconfigSecrets" // package backends/kubeconfig, New
	KindKubeconfigFiles   = "KubeconfigFiles"   // package backends/kubeconfig, NewFiles
)

// Fleet is a fleet file. A field that is left out, or null, has the default of the option that it stands for.
type Fleet struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Backends are the inventories. Under a shared prefix, an earlier one takes precedence.
	Backends []Backend `json:"backends"`
}

// Backend is one inventory of the fleet.
type Backend struct {
	// Name names the backend: a DNS label, unique in the file. Required.
	Name string `json:"name"`
	// Kind is one of the kinds of the registry. Required.
	Kind string `json:"kind"`
	// Prefix is what members are published under. Default: Name.
	Prefix string `json:"prefix"`
	// Replace is that of aggregate.BackendOptions.
	Replace bool `json:"replace"`
	// Guard is that of aggregate.BackendOptions.
	Guard Guard `json:"guard"`
	// Options is a pointer to the options of the kind, such as *ClusterAPIOptions. The file calls them options.
	Options any `json:"-"`
}

// Guard is aggregate.GuardOptions, whose documentation applies.
type Guard struct {
	Off        bool          `json:"off"`
	MinMembers int           `json:"minMembers"`
	Share      float64       `json:"share"`
	Window     time.Duration `json:"window"`
	Hold       time.Duration `json:"hold"`
}

// Hub is the API server that holds an inventory. Without a kubeconfig it is the cluster that the program itself works
// for.
type Hub struct {
	// Kubeconfig is the absolute path of a kubeconfig file.
	Kubeconfig string `json:"kubeconfig"`
	// Context is the context in that file. Default: the current one.
	Context string `json:"context"`
}

// Policy is a connection.Policy, whose documentation applies.
type Policy struct {
	ExecCommands        []string       `json:"execCommands"`
	ExecEnv             []string       `json:"execEnv"`
	AllowInsecureTLS    bool           `json:"allowInsecureTLS"`
	AllowPlainHTTP      bool           `json:"allowPlainHTTP"`
	AllowFiles          bool           `json:"allowFiles"`
	AllowProxy          bool           `json:"allowProxy"`
	AllowURLCredentials bool           `json:"allowURLCredentials"`
	AllowBasicAuth      bool           `json:"allowBasicAuth"`
	AllowImpersonation  bool           `json:"allowImpersonation"`
	DenyLoopback        bool           `json:"denyLoopback"`
	DenyLinkLocal       bool           `json:"denyLinkLocal"`
	DenyPrivate         bool           `json:"denyPrivate"`
	DenyHosts           []string       `json:"denyHosts"`
	DenyNetworks        []netip.Prefix `json:"denyNetworks"`
	MaxSize             int            `json:"maxSize"`
	UsedEntriesOnly     bool           `json:"usedEntriesOnly"`
	Audit               bool           `json:"audit"`
}

// ClusterAPIOptions are those of capi.Options that a file can express.
type ClusterAPIOptions struct {
	Hub           Hub           `json:"hub"`
	Namespaces    []string      `json:"namespaces"`
	LabelSelector string        `json:"labelSelector"`
	SecretName    string        `json:"secretName"`
	SecretKeys    []string      `json:"secretKeys"`
	Context       string        `json:"context"`
	Deletion      string        `json:"deletion"`
	MoveGrace     time.Duration `json:"moveGrace"`
	Policy        Policy        `json:"policy"`
}

// ClusterProfilesOptions are those of inventory.Options that a file can express.
type ClusterProfilesOptions struct {
	Hub                Hub           `json:"hub"`
	Namespaces         []string      `json:"namespaces"`
	LabelSelector      string        `json:"labelSelector"`
	ClusterManagers    []string      `json:"clusterManagers"`
	ClusterSets        []string      `json:"clusterSets"`
	Placement          *Placement    `json:"placement"`
	Readiness          Readiness     `json:"readiness"`
	ProviderFile       string        `json:"providerFile"`
	TokenSecrets       *TokenSecrets `json:"tokenSecrets"`
	Consumer           string        `json:"consumer"`
	ConsumerNamespaces []string      `json:"consumerNamespaces"`
	Policy             Policy        `json:"policy"`
}

// Placement is an inventory.Placement.
type Placement struct {
	Key        string        `json:"key"`
	Namespaces []string      `json:"namespaces"`
	Grace      time.Duration `json:"grace"`
}

// Readiness is an inventory.Readiness. An empty list of conditions makes every profile ready.
type Readiness struct {
	Conditions     []Condition   `json:"conditions"`
	DisengageAfter time.Duration `json:"disengageAfter"`
}

// Condition is an inventory.Condition. Each meaning is Ready, or left out for not ready.
type Condition struct {
	Type    string `json:"type"`
	False   string `json:"false"`
	Unknown string `json:"unknown"`
	Absent  string `json:"absent"`
}

// TokenSecrets is an inventory.TokenSecrets.
type TokenSecrets struct {
	Providers []string `json:"providers"`
	Namespace string   `json:"namespace"`
}

// KubeconfigSecretsOptions are those of kubeconfig.Options that a file can express.
type KubeconfigSecretsOptions struct {
	Hub           Hub           `json:"hub"`
	Preset        string        `json:"preset"`
	Namespaces    []string      `json:"namespaces"`
	LabelSelector string        `json:"labelSelector"`
	FieldSelector string        `json:"fieldSelector"`
	NamePattern   string        `json:"namePattern"`
	Names         []string      `json:"names"`
	PollInterval  time.Duration `json:"pollInterval"`
	Format        string        `json:"format"`
	Keys          []string      `json:"keys"`
	Context       string        `json:"context"`
	AllContexts   bool          `json:"allContexts"`
	Member        string        `json:"member"`
	Policy        Policy        `json:"policy"`
	HoldFor       time.Duration `json:"holdFor"`
}

// KubeconfigFilesOptions are those of kubeconfig.FilesOptions that a file can express.
type KubeconfigFilesOptions struct {
	Paths          []string      `json:"paths"`
	Contexts       []string      `json:"contexts"`
	CurrentContext bool          `json:"currentContext"`
	Member         string        `json:"member"`
	Policy         *Policy       `json:"policy"`
	HoldFor        time.Duration `json:"holdFor"`
	PollInterval   time.Duration `json:"pollInterval"`
}
