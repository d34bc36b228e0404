package connection_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-multierror"
	"github.com/tributary-fleet/tributary/connection"
)

const kubeconfig = `
current-context: prod
clusters: [{name: prod, cluster: {server: "https://prod.example.com:6443"}}]
users: [{name: ci, user: {token: abc}}, {name: admin, user: {tokenFile: /var/token, exec: {command: sh}}}]
contexts: [{name: prod, context: {cluster: prod, user: ci}}]
`

// A kubeconfig from a Secret is judged as a whole: what is wrong with a user that no context needs refuses it.
func ExampleParseKubeconfig() {
	_, err := connection.ParseKubeconfig(context.Background(), []byte(kubeconfig), connection.KubeconfigOptions{})
	if all := new(multierror.Error); errors.As(err, &all) {
		for _, violation := range all.Errors {
			fmt.Println(violation)
		}
	}
	// Output:
	// policy refuses users["admin"].exec: the command is not one of those allowed (Exec)
	// policy refuses users["admin"].tokenFile: references to files are not allowed (Files)
}

// In a local file, only what a context uses counts for it. The connection can be printed: the token stays hidden.
func ExampleParseKubeconfig_localFile() {
	result, err := connection.ParseKubeconfig(context.Background(), []byte(kubeconfig), connection.KubeconfigOptions{
		Policy: connection.LocalFiles(), Dir: "/home/jane/.kube",
	})
	fmt.Println(result.Name, result.Spec.Endpoint, result.Spec.Auth, err)
	// Output:
	// prod {server:https://prod.example.com:6443} {token:[redacted]} <nil>
}
