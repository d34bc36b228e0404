package connection

import "strings"

const tokenCAObject = "token and CA"

// FromTokenCA makes a connection of a server's URL, a bearer token and a CA in PEM, as Karmada's clusters and
// service account Secrets hold them. The CA may be empty: then the server is verified with the system's roots.
// The token may not. Errors are those of [ParseKubeconfig], with the fields server, token and ca.
func FromTokenCA(server string, token, ca []byte, policy Policy) (Result, error) {
	if err := policy.checkSize(tokenCAObject, len(server)+len(token)+len(ca)); err != nil {
		return Result{}, err
	}
	c := &rawCluster{entry: entry{object: tokenCAObject}, names: clusterNames{server: "server", caData: "ca"}}
	c.server = parseAddress(strings.TrimSpace(server), "https", "http")
	c.caData = encoded{text: string(ca)}
	u := &rawUser{entry: entry{object: tokenCAObject}, names: userNames{token: "token", any: "token"}}
	u.token, u.mentions = string(token), true
	return build(policy, c, u, Result{})
}
