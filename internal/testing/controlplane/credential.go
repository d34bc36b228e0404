package controlplane

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Credential is how somebody connects to a control plane: with a bearer token or a client certificate.
type Credential struct {
	cluster string // the cluster's name in a kubeconfig
	server  string
	ca      []byte
	user    string // the user's name in a kubeconfig
	token   string
	pair    keyPair
}

func (c *ControlPlane) credential(user string, pair keyPair) *Credential {
	return &Credential{cluster: c.opts.Name, server: c.URL(), ca: c.CAData(), user: user, pair: pair}
}

// Token returns the bearer token; empty for a client certificate.
func (k *Credential) Token() string { return k.token }

// Config returns how to connect: a copy of its own for each call, without a client-side rate limit.
func (k *Credential) Config() *rest.Config {
	return &rest.Config{
		Host:        k.server,
		BearerToken: k.token,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: k.ca, CertData: k.pair.cert, KeyData: k.pair.key,
		},
		QPS: -1,
	}
}

// Kubeconfig returns a kubeconfig file with everything embedded.
func (k *Credential) Kubeconfig() []byte { return k.KubeconfigFor(k.server) }

// KubeconfigFor returns a kubeconfig file for another address of the same server, such as that of a proxy in
// front of it. The host must be 127.0.0.1, localhost or ::1, or the server's certificate does not match.
func (k *Credential) KubeconfigFor(server string) []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters[k.cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: k.ca}
	config.AuthInfos[k.user] = &clientcmdapi.AuthInfo{
		Token: k.token, ClientCertificateData: k.pair.cert, ClientKeyData: k.pair.key,
	}
	config.Contexts[k.cluster] = &clientcmdapi.Context{Cluster: k.cluster, AuthInfo: k.user}
	config.CurrentContext = k.cluster
	b, err := clientcmd.Write(*config)
	if err != nil { // plain data always encodes
		panic(fmt.Sprintf("encode kubeconfig: %v", err))
	}
	return b
}

// String names the credential's user and cluster, and shows no secret.
func (k *Credential) String() string { return k.user + " at " + k.cluster }
