// Package hubtest lets tests write to a hub: a real API server that they share, in a namespace of their own.
package hubtest

import (
	"context"
	"maps"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

// timeout bounds each function's requests.
const timeout = time.Minute

// Hub is a control plane as a test writes to it.
type Hub struct {
	*controlplane.ControlPlane
	client client.Client
}

// New returns the administrator's view of a control plane. Its connections are closed with the test.
func New(t testing.TB, plane *controlplane.ControlPlane) *Hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, clusterv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := plane.Config()
	config.WarningHandler = rest.NoWarnings{}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) })
	c, err := client.New(config, client.Options{Scheme: scheme, HTTPClient: httpClient})
	if err != nil {
		t.Fatal(err)
	}
	return &Hub{ControlPlane: plane, client: c}
}

// Namespace makes a namespace with the labels and returns its name.
func (h *Hub) Namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	h.do(t, "create namespace", func(ctx context.Context) error { return h.client.Create(ctx, namespace) })
	return namespace.Name
}

// Put creates an object, or updates it if it exists: its status as well, where it has one.
func (h *Hub) Put(t testing.TB, obj client.Object) {
	t.Helper()
	// The answers overwrite what they are decoded into.
	h.do(t, "put object", func(ctx context.Context) error {
		spec := obj.DeepCopyObject().(client.Object)
		err := h.client.Create(ctx, spec)
		if apierrors.IsAlreadyExists(err) {
			existing := obj.DeepCopyObject().(client.Object)
			if err := h.client.Get(ctx, client.ObjectKeyFromObject(obj), existing); err != nil {
				return err
			}
			spec = obj.DeepCopyObject().(client.Object)
			spec.SetResourceVersion(existing.GetResourceVersion())
			err = h.client.Update(ctx, spec)
		}
		if err != nil {
			return err
		}
		status := obj.DeepCopyObject().(client.Object)
		status.SetResourceVersion(spec.GetResourceVersion())
		if err := h.client.Status().Update(ctx, status); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// WaitAllowed waits until the API server allows a user something, or no longer: it learns of changed roles a moment after they
// are written.
func (h *Hub) WaitAllowed(t testing.TB, user string, what authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	h.do(t, "wait for the rights of "+user, func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
			err := h.client.Create(ctx, review)
			return err == nil && review.Status.Allowed == allowed, err
		})
	})
}

// Delete deletes an object.
func (h *Hub) Delete(t testing.TB, obj client.Object) {
	t.Helper()
	h.do(t, "delete object", func(ctx context.Context) error { return h.client.Delete(ctx, obj) })
}

// Label sets labels of an object; an empty value takes the label away.
func (h *Hub) Label(t testing.TB, obj client.Object, labels map[string]string) {
	t.Helper()
	h.do(t, "label object", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		all := maps.Clone(obj.GetLabels())
		if all == nil {
			all = map[string]string{}
		}
		for name, value := range labels {
			if value == "" {
				delete(all, name)
			} else {
				all[name] = value
			}
		}
		obj.SetLabels(all)
		return h.client.Update(ctx, obj)
	})
}

// Serve makes the API server serve a version of a custom resource, or stop to. Objects stay as they are.
func (h *Hub) Serve(t testing.TB, crd, version string, served bool) {
	t.Helper()
	h.changeVersions(t, crd, func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
		if v.Name == version {
			v.Served = served
		}
	})
}

// Store makes the API server store objects of a custom resource in a version from now on. What that version does not
// have is lost when an object is written, as there is no webhook to convert it.
func (h *Hub) Store(t testing.TB, crd, version string) {
	t.Helper()
	h.changeVersions(t, crd, func(v *apiextensionsv1.CustomResourceDefinitionVersion) { v.Storage = v.Name == version })
}

func (h *Hub) changeVersions(t testing.TB, crd string, change func(*apiextensionsv1.CustomResourceDefinitionVersion)) {
	t.Helper()
	h.do(t, "change versions", func(ctx context.Context) error {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := h.client.Get(ctx, client.ObjectKey{Name: crd}, &definition); err != nil {
			return err
		}
		for i := range definition.Spec.Versions {
			change(&definition.Spec.Versions[i])
		}
		return h.client.Update(ctx, &definition)
	})
}

// NextSecond waits until objects that are created now are younger than obj: creation timestamps count whole seconds.
func (h *Hub) NextSecond(t testing.TB, obj client.Object) {
	t.Helper()
	h.do(t, "get object", func(ctx context.Context) error {
		return h.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	})
	// Test and API server run on one machine, so they share the clock.
	time.Sleep(time.Until(obj.GetCreationTimestamp().Add(time.Second)))
}

func (h *Hub) do(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatalf("%s on hub %s: %v", what, h.Name(), err)
	}
}

// Secret returns a Secret to put.
func Secret(namespace, name string, labels map[string]string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Data:       data,
	}
}
