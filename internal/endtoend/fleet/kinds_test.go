package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/internal/endtoend"
	"github.com/tributary-fleet/tributary/internal/testing/controlplane"
)

var widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func widgetCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

func installWidgets(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	c, err := apiextensionsclient.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), widgetCRD(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Other tests do not expect the kind. The test's own context has ended by then.
	t.Cleanup(func() {
		err := c.ApiextensionsV1().CustomResourceDefinitions().Delete(context.Background(), "widgets.example.com", metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func removeWidgets(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	c, err := apiextensionsclient.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createWidget creates a widget as soon as the kind is served.
func createWidget(t *testing.T, plane *controlplane.ControlPlane, name string) {
	t.Helper()
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	endtoend.Eventually(t, "widget created", func() bool {
		w := &unstructured.Unstructured{}
		w.SetGroupVersionKind(widgetKind)
		w.SetNamespace("default")
		w.SetName(name)
		err := c.Create(t.Context(), w)
		return err == nil || apierrors.IsAlreadyExists(err)
	})
}

// A fleet with uneven CRDs runs every controller: where a kind is missing, its controller waits, and wakes up when it comes.
func TestUnevenCRDs(t *testing.T) {
	with := planes.Get(t, controlplane.Options{Name: "good-0"})
	without := planes.Get(t, controlplane.Options{Name: "good-1"})
	getting := planes.Get(t, controlplane.Options{Name: "good-2"})
	losing := planes.Get(t, controlplane.Options{Name: "good-3"})
	members := map[string]*controlplane.ControlPlane{"with": with, "without": without, "getting": getting, "losing": losing}
	installWidgets(t, with)
	installWidgets(t, losing)

	var mu sync.Mutex
	widgets := map[string]bool{}
	saw := func(cluster, name string) bool {
		mu.Lock()
		defer mu.Unlock()
		return widgets[cluster+" "+name]
	}
	logged := &logCounter{}
	quiet := endtoend.WithManager(func(o *mcmanager.Options) { o.Logger = logged.logger() })
	f := endtoend.Start(t, aggregate.Options{}, quiet, endtoend.Before(func(f *endtoend.Fleet) {
		kind := &unstructured.Unstructured{}
		kind.SetGroupVersionKind(widgetKind)
		if err := f.Manager.GetFieldIndexer().IndexField(t.Context(), kind, "first", func(o client.Object) []string {
			return []string{o.GetName()[:1]}
		}); err != nil {
			t.Fatal(err)
		}
		err := mcbuilder.ControllerManagedBy(f.Manager).Named("widgets").For(kind).
			WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: new(true)}).
			Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				widgets[req.ClusterName.String()+" "+req.Name] = true
				return ctrl.Result{}, nil
			}))
		if err != nil {
			t.Fatal(err)
		}
	}))
	inv := f.Declare(t, "x")
	for name, plane := range members {
		inv.Say().Engage(endtoend.Member(t, name, plane.Kubeconfig()))
	}
	for name, plane := range members {
		cm := endtoend.ConfigMap(t, plane, "here")
		endtoend.Eventually(t, "ConfigMaps of "+name+" are reconciled", func() bool { return f.Saw("x/"+name, cm) > 0 })
		endtoend.Eventually(t, name+" is engaged", func() bool { return f.Is("x/"+name, backends.Engaged, backends.ReasonReady) })
	}
	for _, name := range []string{"without", "getting"} {
		if s := f.Status("x/" + name); !strings.Contains(s.Message, "Widget.example.com") {
			t.Errorf("status of %s does not name the missing kind: %q", name, s.Message)
		}
	}
	createWidget(t, with, "one")
	endtoend.Eventually(t, "a widget where the kind always was", func() bool { return saw("x/with", "one") })

	cl, err := f.Get(t.Context(), "x/getting")
	if err != nil {
		t.Fatal(err)
	}
	installWidgets(t, getting)
	createWidget(t, getting, "two")
	endtoend.Eventually(t, "a widget where the kind has come", func() bool { return saw("x/getting", "two") })
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(widgetKind)
	if err := cl.GetCache().List(t.Context(), list, client.MatchingFields{"first": "t"}); err != nil || len(list.Items) != 1 {
		t.Errorf("list by an index that was added before the kind came: %d items, %v", len(list.Items), err)
	}
	if now, err := f.Get(t.Context(), "x/getting"); err != nil || now != cl {
		t.Errorf("the cluster was engaged anew (%v)", err)
	}

	removeWidgets(t, losing)
	endtoend.Eventually(t, "the lost kind is shown", func() bool { return strings.Contains(f.Status("x/losing").Message, "Widget.example.com") })
	cm := endtoend.ConfigMap(t, losing, "still")
	endtoend.Eventually(t, "ConfigMaps are reconciled still", func() bool { return f.Saw("x/losing", cm) > 0 })
	if s := f.Status("x/losing"); s.State != backends.Engaged {
		t.Errorf("state after losing a kind: %s (%s)", s.State, s.Reason)
	}
	installWidgets(t, losing)
	createWidget(t, losing, "three")
	endtoend.Eventually(t, "a widget where the kind has come back", func() bool { return saw("x/losing", "three") })

	lines, failures := logged.counts()
	t.Logf("%d lines were logged", lines)
	if lines > 100 {
		t.Errorf("%d lines were logged: a storm", lines)
	}
	for _, line := range failures {
		t.Errorf("logged as an error: %s", line)
	}
}

// logCounter counts what is logged by the manager, its controllers and the provider.
type logCounter struct {
	mu       sync.Mutex
	lines    int
	failures []string
}

func (c *logCounter) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines++
		if strings.Contains(args, `"error"=`) {
			c.failures = append(c.failures, prefix+" "+args)
		}
	}, funcr.Options{})
}

func (c *logCounter) counts() (lines int, failures []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines, slices.Clone(c.failures)
}

// A kind that the user may not watch is reported, and harms no other.
func TestForbiddenKind(t *testing.T) {
	plane := planes.Get(t, controlplane.Options{Name: "one"})
	rules := []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"namespaces"}}}
	user := endtoend.NewUser(t, plane, rules...)
	f := endtoend.Start(t, aggregate.Options{})
	inv := f.Declare(t, "x")
	inv.Say().Engage(endtoend.Member(t, "a", endtoend.Issue(t, user).Kubeconfig()))
	endtoend.Eventually(t, "the refused watch is shown", func() bool { return f.Is("x/a", backends.Degraded, backends.ReasonWatchRefused) })
	if s := f.Status("x/a"); !strings.Contains(s.Message, "/api/v1/configmaps") || !strings.Contains(s.Message, "403") {
		t.Errorf("the message does not say what is refused: %q", s.Message)
	}
	cl, err := f.Get(t.Context(), "x/a")
	if err != nil {
		t.Fatal(err)
	}
	read, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller gave up"))
	if err := cl.GetClient().List(read, &rbacv1.RoleList{}); err == nil {
		t.Error("a read of a kind that cannot sync succeeded")
	}
	if err := user.SetRules(t.Context(), append(rules, controlplane.Everything()...)...); err != nil {
		t.Fatal(err)
	}
	cm := endtoend.ConfigMap(t, plane, "allowed")
	endtoend.Eventually(t, "reconciled once it is allowed", func() bool { return f.Saw("x/a", cm) > 0 })
	endtoend.Eventually(t, "all well", func() bool { return f.Is("x/a", backends.Engaged, backends.ReasonReady) })
}
