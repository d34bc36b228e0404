package connection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseKubeconfigReadsEveryField(t *testing.T) {
	data := kubeconfig(
		secureCluster()+"\ntls-server-name: api.internal\ndisable-compression: true\nproxy-url: http://proxy.example.com:3128",
		"token: abc\nclient-certificate-data: "+b64(admin().cert)+"\nclient-key-data: "+b64(admin().key)+
			"\nas: jane\nas-uid: u-1\nas-groups: [dev]\nas-user-extra: {scopes: [a, b]}",
	)
	got, err := ParseKubeconfig(t.Context(), []byte(data), KubeconfigOptions{Policy: Policy{AllowProxy: true, AllowImpersonation: true}})
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Name: "main", Spec: Spec{
		Endpoint: Endpoint{
			Server: "https://prod.example.com:6443", CAData: []byte(admin().cert), TLSServerName: "api.internal",
			DisableCompression: true, Proxy: Proxy{URL: "http://proxy.example.com:3128"},
		},
		Auth: Auth{
			Token: NewSecret("abc"), ClientCertificateData: []byte(admin().cert), ClientKeyData: NewSecret(admin().key),
			Impersonate: Impersonation{UserName: "jane", UID: "u-1", Groups: []string{"dev"}, Extra: map[string][]string{"scopes": {"a", "b"}}},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
