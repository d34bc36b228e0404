package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"
)

// CRDs is a set of CustomResourceDefinitions as a project releases them.
type CRDs string

const (
	// ClusterAPI is the Cluster kind of Cluster API, in all its served versions.
	ClusterAPI CRDs = "cluster-api"
	// ClusterInventory are all kinds of the Cluster Inventory API.
	ClusterInventory CRDs = "cluster-inventory-api"
)

// source says where the set is: in which module that hack/crds requires, and in which of its files.
func (s CRDs) source() (module, pattern string, err error) {
	switch s {
	case ClusterAPI:
		return "sigs.k8s.io/cluster-api", "core/config/crd/bases/cluster.x-k8s.io_clusters.yaml", nil
	case ClusterInventory:
		return "sigs.k8s.io/cluster-inventory-api", "config/crd/bases/*.yaml", nil
	default:
		return "", "", fmt.Errorf("unknown set of CRDs %q", string(s))
	}
}

// Load returns the definitions of the set. They are taken from the module's zip, checked against go.sum, once;
// after that from the user's cache folder, as with [Find].
func (s CRDs) Load(ctx context.Context, progress io.Writer) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	path, pattern, err := s.source()
	if err != nil {
		return nil, err
	}
	dir, err := findModule("crds")
	if err != nil {
		return nil, err
	}
	m, err := readModule(dir)
	if err != nil {
		return nil, err
	}
	version, err := m.version(path)
	if err != nil {
		return nil, err
	}
	c, err := openCache(progress)
	if err != nil {
		return nil, err
	}
	entry, err := c.entry(ctx, fmt.Sprintf("crds-%s-%s-%s", s, version, m.digest), func(ctx context.Context, dst string) error {
		return copyFromModule(ctx, c, m.dir, path, pattern, dst)
	})
	if err != nil {
		return nil, fmt.Errorf("load CRDs of %s: %w", s, err)
	}
	files, err := filepath.Glob(filepath.Join(entry, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("load CRDs of %s: %w", s, err)
	}
	slices.Sort(files)
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("load CRDs of %s: %w", s, err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(b, crd); err != nil {
			return nil, fmt.Errorf("load CRDs of %s: parse %s: %w", s, filepath.Base(file), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// copyFromModule copies the files that match pattern in the required module path to dst.
func copyFromModule(ctx context.Context, c cache, dir, path, pattern, dst string) error {
	g, err := newGoTool(dir, c)
	if err != nil {
		return err
	}
	out, err := g.run(ctx, "downloading "+path, "mod", "download", "-json", path)
	if err != nil {
		if !errors.Is(err, ErrNoSpace) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrNoModules, err)
		}
		return err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return fmt.Errorf("read answer of go mod download: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, filepath.FromSlash(pattern)))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("module %s has no %s", path, pattern)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dst, filepath.Base(file)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// InstallCRDs creates the definitions of the sets, or updates them where they exist, and waits until the API
// server serves them.
func (c *ControlPlane) InstallCRDs(ctx context.Context, sets ...CRDs) error {
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, s := range sets {
		crds, err := s.Load(ctx, c.opts.Progress)
		if err != nil {
			return err
		}
		all = append(all, crds...)
	}
	clients, err := apiextensions.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	client := clients.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range all {
		_, err := client.Create(ctx, crd, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var present *apiextensionsv1.CustomResourceDefinition
			if present, err = client.Get(ctx, crd.Name, metav1.GetOptions{}); err == nil {
				crd.ResourceVersion = present.ResourceVersion
				_, err = client.Update(ctx, crd, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("install CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range all {
		err := wait.PollUntilContextTimeout(ctx, readyPoll, startLimit, true, func(ctx context.Context) (bool, error) {
			present, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
			return err == nil && established(present), nil
		})
		if err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return waitServed(ctx, clients, all)
}

// waitServed waits until discovery lists every definition's kinds: that comes a moment after Established.
func waitServed(ctx context.Context, clients apiextensions.Interface, crds []*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				continue
			}
			gv := crd.Spec.Group + "/" + v.Name
			err := wait.PollUntilContextTimeout(ctx, readyPoll, startLimit, true, func(context.Context) (bool, error) {
				list, err := clients.Discovery().ServerResourcesForGroupVersion(gv)
				return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
					return r.Name == crd.Spec.Names.Plural
				}), nil
			})
			if err != nil {
				return fmt.Errorf("wait for %s to be served in %s: %w", crd.Spec.Names.Plural, gv, err)
			}
		}
	}
	return nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// DeleteCRDs deletes the definitions of the sets, with all objects of their kinds, and waits until they are gone.
func (c *ControlPlane) DeleteCRDs(ctx context.Context, sets ...CRDs) error {
	clients, err := apiextensions.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("delete CRDs: %w", err)
	}
	client := clients.ApiextensionsV1().CustomResourceDefinitions()
	for _, s := range sets {
		crds, err := s.Load(ctx, c.opts.Progress)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			err := wait.PollUntilContextTimeout(ctx, readyPoll, startLimit, true, func(ctx context.Context) (bool, error) {
				err := client.Delete(ctx, crd.Name, metav1.DeleteOptions{})
				return apierrors.IsNotFound(err), ignoreConflict(err)
			})
			if err != nil {
				return fmt.Errorf("delete CRD %s: %w", crd.Name, err)
			}
		}
	}
	return nil
}

// ignoreConflict drops the errors of a deletion that is to be tried again.
func ignoreConflict(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
