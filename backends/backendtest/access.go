package backendtest

import (
	"encoding/json"
	"fmt"
)

// marker is part of every credential that the suite uses; it must not be seen anywhere.
const marker = "MARKED-CREDENTIAL"

// Access is how a member is said to be reached. There is nothing at the server.
type Access struct {
	// Server is the URL of the API server.
	Server string
	// Token is the bearer token.
	Token string
}

func accessTo(name string, generation int) Access {
	return Access{
		Server: fmt.Sprintf("https://%s.example.com:6443", name),
		Token:  fmt.Sprintf("%s-%s-%d", marker, name, generation),
	}
}

// Kubeconfig returns the access as a kubeconfig.
func (a Access) Kubeconfig() []byte {
	type object = map[string]any
	data, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []object{{"name": "c", "cluster": object{"server": a.Server}}},
		"users":    []object{{"name": "u", "user": object{"token": a.Token}}},
		"contexts": []object{{"name": "c", "context": object{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		panic(err) // strings only: cannot fail
	}
	return data
}

// BrokenKubeconfig is a kubeconfig that cannot be used and holds a credential nevertheless.
func BrokenKubeconfig() []byte {
	return []byte("apiVersion: v1\nkind: Config\nusers:\n- user: {token: " + marker + "\n  name: [")
}
