package restmapper

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"strconv"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proves reports whether the entity tag is the hash of the document, as kube-apiserver makes it: SHA-512 over the JSON
// of the list without its type. Only then may another cluster be asked whether it serves the same: with any other tag, a
// cluster could give its document the tag of somebody else's.
func proves(tag string, document []byte) bool {
	if len(tag) != len(`""`)+2*sha512.Size {
		return false
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if json.Unmarshal(document, &list) != nil {
		return false
	}
	list.TypeMeta = metav1.TypeMeta{}
	content, err := json.Marshal(list)
	return err == nil && tag == strconv.Quote(fmt.Sprintf("%X", sha512.Sum512(content)))
}
