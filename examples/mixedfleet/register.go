package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The hub's namespaces: one for each inventory, and one for the credentials that go with ClusterProfiles.
const (
	profileNamespace    = "fleet"
	credentialNamespace = "fleet-credentials"
	clusterNamespace    = "infra"
	secretNamespace     = "edge"
)

// prepareHub creates the hub's namespaces.
func (s *stage) prepareHub(ctx context.Context) error {
	for _, ns := range []metav1.ObjectMeta{
		{Name: profileNamespace},
		// Everything in this namespace is meant for us, says its label (KEP-4322).
		{Name: credentialNamespace, Labels: map[string]string{"x-k8s.io/cluster-inventory-consumer": defaultConsumer}},
		{Name: clusterNamespace},
		{Name: secretNamespace},
	} {
		if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: ns}); err != nil {
			return fmt.Errorf("create namespace %s: %w", ns.Name, err)
		}
	}
	return nil
}

// addProfile lists a cluster as a ClusterProfile, and hands out a kubeconfig for it unless that is nil. On a real hub
// a cluster manager such as Open Cluster Management does this.
func (s *stage) addProfile(ctx context.Context, name string, kubeconfig []byte) error {
	profile := &inventoryv1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: profileNamespace, Name: name,
			Labels: map[string]string{inventoryv1alpha1.LabelClusterManagerKey: "mixedfleet-demo"}},
		Spec: inventoryv1alpha1.ClusterProfileSpec{
			DisplayName:    name,
			ClusterManager: inventoryv1alpha1.ClusterManager{Name: "mixedfleet-demo"},
		},
	}
	if err := s.client.Create(ctx, profile); err != nil {
		return fmt.Errorf("create ClusterProfile %s: %w", name, err)
	}
	profile.Status.Conditions = []metav1.Condition{{
		Type: inventoryv1alpha1.ClusterConditionControlPlaneHealthy, Status: metav1.ConditionTrue,
		Reason: "Healthy", LastTransitionTime: metav1.Now(),
	}}
	if err := s.client.Status().Update(ctx, profile); err != nil {
		return fmt.Errorf("update status of ClusterProfile %s: %w", name, err)
	}
	if kubeconfig == nil {
		return nil
	}
	return s.addSecret(ctx, profileSecret(name), kubeconfig)
}

// addCluster lists a cluster as Cluster API would: the Cluster's status says that its control plane is initialized, and
// a Secret holds its kubeconfig, unless that is nil.
func (s *stage) addCluster(ctx context.Context, name string, kubeconfig []byte) error {
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: name},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}},
	}
	if err := s.client.Create(ctx, cluster); err != nil {
		return fmt.Errorf("create Cluster %s: %w", name, err)
	}
	yes := true
	cluster.Status.Initialization = clusterv1.ClusterInitializationStatus{
		InfrastructureProvisioned: &yes, ControlPlaneInitialized: &yes,
	}
	cluster.Status.Phase = string(clusterv1.ClusterPhaseProvisioned)
	if err := s.client.Status().Update(ctx, cluster); err != nil {
		return fmt.Errorf("update status of Cluster %s: %w", name, err)
	}
	if kubeconfig == nil {
		return nil
	}
	return s.addSecret(ctx, clusterSecret(name), kubeconfig)
}

// addKubeconfig lists a cluster as a kubeconfig in a Secret with a label.
func (s *stage) addKubeconfig(ctx context.Context, name string, kubeconfig []byte) error {
	return s.addSecret(ctx, kubeconfigSecret(name), kubeconfig)
}

// A secret is where an inventory keeps the kubeconfig of a cluster.
type secret struct {
	meta       metav1.ObjectMeta
	secretType corev1.SecretType
	key        string
}

// profileSecret is a ClusterProfile's Secret, as KEP-4322 has it.
func profileSecret(profile string) secret {
	return secret{key: "Config", meta: metav1.ObjectMeta{Namespace: credentialNamespace, Name: profile, Labels: map[string]string{
		"x-k8s.io/cluster-profile":           profile,
		"x-k8s.io/cluster-profile-namespace": profileNamespace,
	}}}
}

// clusterSecret is a Cluster's Secret, as Cluster API's contract has it.
func clusterSecret(cluster string) secret {
	return secret{key: "value", secretType: clusterv1.ClusterSecretType,
		meta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: cluster + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}}
}

// kubeconfigSecret is a Secret as multicluster-runtime's kubeconfig provider has it.
func kubeconfigSecret(name string) secret {
	return secret{key: "kubeconfig", meta: metav1.ObjectMeta{Namespace: secretNamespace, Name: name,
		Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"}}}
}

func (s *stage) addSecret(ctx context.Context, at secret, kubeconfig []byte) error {
	o := &corev1.Secret{ObjectMeta: at.meta, Type: at.secretType, Data: map[string][]byte{at.key: kubeconfig}}
	if err := s.client.Create(ctx, o); err != nil {
		return fmt.Errorf("create Secret %s/%s: %w", at.meta.Namespace, at.meta.Name, err)
	}
	return nil
}

// replaceKubeconfig puts another kubeconfig into a Secret.
func (s *stage) replaceKubeconfig(ctx context.Context, at secret, kubeconfig []byte) error {
	var o corev1.Secret
	err := s.client.Get(ctx, client.ObjectKey{Namespace: at.meta.Namespace, Name: at.meta.Name}, &o)
	if err == nil {
		o.Data[at.key] = kubeconfig
		err = s.client.Update(ctx, &o)
	}
	if err != nil {
		return fmt.Errorf("update Secret %s/%s: %w", at.meta.Namespace, at.meta.Name, err)
	}
	return nil
}

// removeCluster deletes a Cluster and its Secret.
func (s *stage) removeCluster(ctx context.Context, name string) error {
	for _, o := range []client.Object{
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: name}},
		&corev1.Secret{ObjectMeta: clusterSecret(name).meta},
	} {
		if err := s.client.Delete(ctx, o); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, name, err)
		}
	}
	return nil
}
