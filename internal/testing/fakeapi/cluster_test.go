package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tributary-fleet/tributary/internal/testing/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(t testing.TB) *Server {
	s := NewServer()
	t.Cleanup(s.Close)
	return s
}

func clientset(t testing.TB, c *Cluster, token string) *kubernetes.Clientset {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(c.Config(token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	set, err := kubernetes.NewForConfigAndClient(c.Config(token), httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
}

func put(t testing.TB, c *Cluster, obj client.Object) {
	t.Helper()
	if err := c.Put(obj); err != nil {
		t.Fatal(err)
	}
}

func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// events records what an informer says.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(what string, obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	o := obj.(client.Object)
	entry := what + " " + o.GetNamespace() + "/" + o.GetName()
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		entry += "=" + cm.Data["value"]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, entry)
}

func (e *events) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { e.add("add", o) },
		UpdateFunc: func(_, o any) { e.add("update", o) },
		DeleteFunc: func(o any) { e.add("delete", o) },
	}
}

func (e *events) has(entry string) func() bool {
	return func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Contains(e.all, entry)
	}
}

// startCluster runs a controller-runtime cluster with an informer on obj.
func startCluster(t *testing.T, c *Cluster, token string, obj client.Object) (cluster.Cluster, *events) {
	t.Helper()
	cl, err := cluster.New(c.Config(token))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		cl.GetHTTPClient().CloseIdleConnections()
	})
	wg.Go(func() {
		if err := cl.Start(ctx); err != nil {
			t.Errorf("cluster: %v", err)
		}
	})
	informer, err := cl.GetCache().GetInformer(ctx, obj)
	if err != nil {
		t.Fatal(err)
	}
	e := &events{}
	if _, err := informer.AddEventHandler(e.handler()); err != nil {
		t.Fatal(err)
	}
	if !cl.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	return cl, e
}

// controller-runtime's cache lists, watches and sees every change, and its client writes.
func TestControllerRuntimeCluster(t *testing.T) {
	c := newServer(t).Cluster("c")
	put(t, c, configMap("default", "before", "1"))
	cl, e := startCluster(t, c, "", &corev1.ConfigMap{})
	waitFor(t, "before", e.has("add default/before=1"))

	put(t, c, configMap("default", "after", "1"))
	waitFor(t, "added", e.has("add default/after=1"))
	put(t, c, configMap("default", "after", "2"))
	waitFor(t, "updated", e.has("update default/after=2"))
	if err := c.Delete(configMap("default", "before", "")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "deleted", e.has("delete default/before=1"))

	cm := configMap("default", "written", "1")
	if err := cl.GetClient().Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "written", e.has("add default/written=1"))
	cm.Data["value"] = "2"
	if err := cl.GetClient().Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "rewritten", e.has("update default/written=2"))
	cm.ResourceVersion = "1"
	if err := cl.GetClient().Update(t.Context(), cm); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v, want a conflict", err)
	}
	if err := cl.GetClient().Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "removed", e.has("delete default/written=2"))
	if got := c.Counter.Relists(); got != 1 {
		t.Errorf("lists and watch-lists = %d, want 1", got)
	}
}

// A watch that ends is continued from where it was; one that is too late begins anew.
func TestWatchesEndAndExpire(t *testing.T) {
	c := newServer(t).Cluster("c")
	_, e := startCluster(t, c, "", &corev1.ConfigMap{})
	put(t, c, configMap("default", "a", "1"))
	waitFor(t, "a", e.has("add default/a=1"))
	waitFor(t, "the watch", func() bool {
		return c.Counter.Count(faultproxy.WithVerb(faultproxy.WatchList))+c.Counter.Count(faultproxy.WithVerb(faultproxy.Watch)) >= 1
	})
	// A watch younger than a second that ends is taken for a failure by client-go, unless it brought something.
	c.EndWatches("/configmaps")
	put(t, c, configMap("default", "b", "1"))
	waitFor(t, "b", e.has("add default/b=1"))
	if got := c.Counter.Relists(); got != 1 {
		t.Errorf("lists and watch-lists after a watch ended = %d, want 1", got)
	}

	c.Expire()
	c.EndWatches("")
	put(t, c, configMap("default", "c", "1"))
	waitFor(t, "c", e.has("add default/c=1"))
	if got := c.Counter.Relists(); got != 2 {
		t.Errorf("lists and watch-lists after expiry = %d, want 2", got)
	}
}

// A kind comes and goes as with a CRD, for unstructured objects, too.
func TestInstallKind(t *testing.T) {
	c := newServer(t).Cluster("c")
	widget := Kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, Resource: "widgets"}
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(widget.GroupVersionKind)
	w.SetNamespace("default")
	w.SetName("w")
	if err := c.Put(w); err == nil {
		t.Error("an object of an unknown kind was taken")
	}
	c.InstallKind(widget)
	put(t, c, w)
	_, e := startCluster(t, c, "", w)
	waitFor(t, "w", e.has("add default/w"))

	c.RemoveKind(widget)
	get := func() error {
		return clientset(t, c, "").RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/default/widgets/w").Do(t.Context()).Error()
	}
	if err := get(); !apierrors.IsNotFound(err) {
		t.Errorf("after removal: %v, want not found", err)
	}
	c.InstallKind(widget)
	if err := get(); !apierrors.IsNotFound(err) {
		t.Errorf("after another installation: %v: the objects came back", err)
	}
}

// Aggregated and legacy discovery list the same, and a broken group is broken in both.
func TestDiscovery(t *testing.T) {
	c := newServer(t).Cluster("c")
	c.SetKinds(45)
	for _, legacy := range []bool{false, true} {
		c.SetLegacyDiscovery(legacy)
		_, lists, err := clientset(t, c, "").Discovery().ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, l := range lists {
			n += len(l.APIResources)
		}
		if want := len(builtin()) + 45; n != want {
			t.Errorf("legacy %v: %d resources, want %d", legacy, n, want)
		}
		c.BreakGroup("g1.example.com", true)
		_, lists, err = clientset(t, c, "").Discovery().ServerGroupsAndResources()
		if err == nil || len(lists) == 0 {
			t.Errorf("legacy %v, broken group: %d lists, %v", legacy, len(lists), err)
		}
		c.BreakGroup("g1.example.com", false)
	}
}

func TestIdentityUserAndRights(t *testing.T) {
	c := newServer(t).Cluster("c")
	c.SetUID("first")
	c.AllowToken("good", "alice")
	set := clientset(t, c, "good")
	ctx := t.Context()
	for _, uid := range []string{"first", "second"} {
		c.SetUID(uid)
		ns, err := set.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		if err != nil || string(ns.UID) != uid {
			t.Errorf("uid = %q, %v; want %q", ns.UID, err, uid)
		}
	}
	c.SetUID("")
	if _, err := set.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without a UID: %v, want not found", err)
	}

	who, err := set.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "alice" {
		t.Errorf("user = %v, %v; want alice", who, err)
	}
	c.SetFault("/api/v1/secrets", Fault{Status: http.StatusForbidden})
	for resource, want := range map[string]bool{"secrets": false, "configmaps": true} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: resource},
		}}
		got, err := set.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil || got.Status.Allowed != want {
			t.Errorf("%s allowed = %v, %v; want %v", resource, got.Status.Allowed, err, want)
		}
	}

	if v, err := set.Discovery().ServerVersion(); err != nil || v.GitVersion != gitVersion {
		t.Errorf("version = %v, %v", v, err)
	}
	c.RevokeToken("good")
	for _, token := range []string{"good", "bad", ""} {
		if err := clientset(t, c, token).RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); !apierrors.IsUnauthorized(err) {
			t.Errorf("token %q: %v, want unauthorized", token, err)
		}
	}
}

func TestFaults(t *testing.T) {
	for name, f := range map[string]struct {
		fault Fault
		want  func(error) bool
	}{
		"401":     {Fault{Status: http.StatusUnauthorized}, apierrors.IsUnauthorized},
		"403":     {Fault{Status: http.StatusForbidden}, apierrors.IsForbidden},
		"410":     {Fault{Status: http.StatusGone}, apierrors.IsResourceExpired},
		"429":     {Fault{Status: http.StatusTooManyRequests, RetryAfter: 1500 * time.Millisecond}, func(err error) bool { s, ok := apierrors.SuggestsClientDelay(err); return ok && s == 2 }},
		"500":     {Fault{Status: http.StatusInternalServerError}, apierrors.IsInternalError},
		"garbage": {Fault{Garbage: true}, func(err error) bool { return err != nil }},
		"hang":    {Fault{Hang: true}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		"slow":    {Fault{Delay: time.Hour}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		"late":    {Fault{Delay: time.Millisecond}, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newServer(t).Cluster("c")
			put(t, c, configMap("default", "a", "1"))
			c.SetFault("/api/v1/configmaps", f.fault)
			set := clientset(t, c, "")
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err := set.RESTClient().Get().AbsPath("/api/v1/configmaps").MaxRetries(0).Do(ctx).Into(&corev1.ConfigMapList{})
			if !f.want(err) {
				t.Errorf("error = %v", err)
			}
			if _, err := set.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("another resource: %v", err)
			}
			c.ClearFaults()
			if l, err := set.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 1 {
				t.Errorf("after clearing: %v", err)
			}
		})
	}
}

// The longest path wins, then the verb, and a fault may last for some requests only.
func TestFaultPrecedence(t *testing.T) {
	c := newServer(t).Cluster("c")
	c.SetFault("", Fault{Status: 500})
	c.SetFault("/api/v1/configmaps", Fault{Status: 401})
	c.SetFault("/api/v1/configmaps", Fault{Status: 403, Verb: faultproxy.Watch, Times: 2})
	for i, want := range []struct {
		path string
		verb faultproxy.Verb
		code int
	}{
		{"/readyz", faultproxy.Other, 500},
		{"/api/v1/configmapsandmore", faultproxy.List, 500},
		{"/api/v1/configmaps", faultproxy.List, 401},
		{"/api/v1/configmaps/x", faultproxy.Other, 401},
		{"/api/v1/configmaps", faultproxy.Watch, 403},
		{"/api/v1/configmaps", faultproxy.Watch, 403},
		{"/api/v1/configmaps", faultproxy.Watch, 401},
	} {
		if got := c.fault(want.path, want.verb, true).Status; got != want.code {
			t.Errorf("%d: %s %s = %d, want %d", i, want.verb, want.path, got, want.code)
		}
	}
}

// A watch with a selector sees objects come into and go out of what is selected.
func TestSelectors(t *testing.T) {
	c := newServer(t).Cluster("c")
	set := clientset(t, c, "")
	put(t, c, configMap("a", "x", "1"))
	put(t, c, configMap("b", "x", "1"))
	list, err := set.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{LabelSelector: "value=1", FieldSelector: "metadata.namespace=a"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Namespace != "a" {
		t.Fatalf("list = %v, %v", list, err)
	}
	w, err := set.CoreV1().ConfigMaps("a").Watch(t.Context(), metav1.ListOptions{LabelSelector: "value=1", ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	put(t, c, configMap("b", "x", "2"))
	put(t, c, configMap("a", "x", "2"))
	put(t, c, configMap("a", "x", "3"))
	put(t, c, configMap("a", "x", "1"))
	put(t, c, configMap("a", "x", "1"))
	for _, want := range []string{"DELETED 2", "ADDED 1", "MODIFIED 1"} {
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatal("the watch ended")
		}
		if got := fmt.Sprint(e.Type, " ", e.Object.(*corev1.ConfigMap).Data["value"]); got != want {
			t.Errorf("event %s, want %s", got, want)
		}
	}
}

// A thousand clusters live on one listener, each with its own objects.
func TestManyClusters(t *testing.T) {
	s := newServer(t)
	for i := range 1000 {
		c := s.Cluster(fmt.Sprintf("member-%d", i))
		c.SetKinds(2000)
		put(t, c, configMap("default", "who", c.name))
	}
	for _, i := range []int{0, 499, 999} {
		name := fmt.Sprintf("member-%d", i)
		set := clientset(t, s.Cluster(name), "")
		cm, err := set.CoreV1().ConfigMaps("default").Get(t.Context(), "who", metav1.GetOptions{})
		if err != nil || cm.Data["value"] != name {
			t.Errorf("%s: %v, %v", name, cm.Data, err)
		}
		ns, err := set.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil || string(ns.UID) != "uid-of-"+name {
			t.Errorf("%s: uid %s, %v", name, ns.UID, err)
		}
	}
}
