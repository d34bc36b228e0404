package connection

import (
	"errors"
	"testing"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

func TestChooseAccessProvider(t *testing.T) {
	tests := map[string]struct {
		extensions []clientcmdv1.NamedExtension
		want       string
	}{
		"a cluster's name":   {[]clientcmdv1.NamedExtension{extension(execExtension, `{"clusterName":"prod"}`)}, "prod"},
		"no extension":       {nil, ""},
		"null":               {[]clientcmdv1.NamedExtension{extension(execExtension, `null`)}, ""},
		"of another type":    {[]clientcmdv1.NamedExtension{extension(execExtension, `["prod"]`)}, ""},
		"empty":              {[]clientcmdv1.NamedExtension{extension(execExtension, "")}, ""},
		"a name that is one": {[]clientcmdv1.NamedExtension{extension(execExtension, `{"clusterName":1}`)}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := profile(offer("plain", clientcmdv1.Cluster{Extensions: test.extensions}))
			provider, clusterName, err := ChooseAccessProvider(accessConfig(), p)
			if err != nil || provider != "plain" || clusterName != test.want {
				t.Errorf("chose %q for cluster %q (%v), want plain for %q", provider, clusterName, err, test.want)
			}
		})
	}
}

func TestParseAccessToken(t *testing.T) {
	p := profile(offer("plain", clientcmdv1.Cluster{Server: "https://proxy.example.com:9092/prod"}))
	r, err := ParseAccessToken("plain", p, NewSecret("token"), Policy{})
	if err != nil || r.Spec.Endpoint.Server != "https://proxy.example.com:9092/prod" || r.Spec.Auth.Token.Reveal() != "token" || r.Spec.Auth.Exec != nil {
		t.Errorf("parsed %+v (%v)", r.Spec, err)
	}
	var problem *AccessError
	if _, err := ParseAccessToken("other", p, NewSecret("token"), Policy{}); !errors.As(err, &problem) || problem.Problem != AccessNotMatched {
		t.Errorf("a provider that is not listed: %v", err)
	}
	var refused *PolicyError
	p = profile(offer("plain", clientcmdv1.Cluster{Server: "http://proxy.example.com"}))
	if _, err := ParseAccessToken("plain", p, NewSecret("token"), Policy{}); !errors.As(err, &refused) || refused.Rule != RulePlainHTTP {
		t.Errorf("plain HTTP: %v", err)
	}
}
