package engagement

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// alive asks whether the server is ready. A server that forbids the question, or does not know it (a proxy in front
// of one, an old server), is alive; one that says yes in other words than an API server's is something else.
func (p prober) alive(ctx context.Context) error {
	answer, err := p.text(ctx, http.MethodGet, "/readyz", nil)
	if err == nil && string(bytes.TrimSpace(answer)) != "ok" {
		return fmt.Errorf("GET /readyz: %w", errNotAPI)
	}
	switch status(err) {
	case http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return nil
	}
	return err
}

// uid returns the UID of the kube-system namespace, or "" if the user may not read it, or there is none.
func (p prober) uid(ctx context.Context) (string, error) {
	var ns metav1.PartialObjectMetadata
	err := p.get(ctx, "/api/v1/namespaces/kube-system", &ns)
	switch status(err) {
	case http.StatusForbidden, http.StatusNotFound:
		return "", nil
	}
	return string(ns.UID), err
}

// version returns the server's version, or "" if it does not say.
func (p prober) version(ctx context.Context) string {
	var v version.Info
	if err := p.get(ctx, "/version", &v); err != nil {
		return ""
	}
	return v.GitVersion
}

// user returns who the server takes us for and what that user's rights hang on, or "" if it does not say (before
// Kubernetes 1.28, or where the request is forbidden). A credential that it refuses is an error.
func (p prober) user(ctx context.Context) (name, rights string, err error) {
	var review authenticationv1.SelfSubjectReview
	err = p.post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
	}, &review)
	if status(err) == http.StatusUnauthorized {
		return "", "", err
	}
	if err != nil {
		return "", "", nil
	}
	u := review.Status.UserInfo
	return u.Username, fmt.Sprintf("%q %q %q", u.Username, u.UID, slices.Sorted(slices.Values(u.Groups))), nil
}

// mayWatch reports whether the user may list and watch everything that the cluster's informers watch.
func (p prober) mayWatch(ctx context.Context, b *built) bool {
	resources := b.watched()
	var (
		wg     sync.WaitGroup
		denied atomic.Bool
	)
	for _, r := range resources {
		for _, verb := range []string{"list", "watch"} {
			wg.Go(func() {
				var review authorizationv1.SelfSubjectAccessReview
				err := p.post(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", authorizationv1.SelfSubjectAccessReview{
					TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: verb, Group: r.Group, Version: r.Version, Resource: r.Resource,
					}},
				}, &review)
				if err != nil || !review.Status.Allowed {
					denied.Store(true)
				}
			})
		}
	}
	wg.Wait()
	return !denied.Load()
}

func (p prober) post(ctx context.Context, path string, body, v any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return p.do(ctx, http.MethodPost, path, bytes.NewReader(data), v)
}

// status returns the HTTP status that the error is about, or 0.
func status(err error) int {
	var s *statusError
	if errors.As(err, &s) {
		return s.code
	}
	return 0
}
