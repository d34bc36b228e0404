package controlplane

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// UserNamespace is the namespace of the service accounts that are users, and of the Secrets that their tokens are bound to.
const UserNamespace = "controlplane-users"

// User is a service account with exactly the rights that were given to it (besides those that every
// authenticated user has: discovery, health and self reviews).
type User struct {
	name    string
	plane   *ControlPlane
	clients kubernetes.Interface
}

// NewUser makes a user who may do what the rules say, in every namespace, and nothing else. Without rules the
// user may do nothing. The name is that of a service account, and must be new.
func (c *ControlPlane) NewUser(ctx context.Context, name string, rules ...rbacv1.PolicyRule) (*User, error) {
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("create user %s: %w", name, err)
	}
	u := &User{name: name, plane: c, clients: clients}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: UserNamespace}}
	if _, err := clients.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create user %s: %w", name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := clients.CoreV1().ServiceAccounts(UserNamespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create user %s: %w", name, err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: u.role()}, Rules: rules}
	if _, err := clients.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create user %s: %w", name, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: u.role()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: u.role()},
		Subjects:   []rbacv1.Subject{u.Subject()},
	}
	if _, err := clients.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create user %s: %w", name, err)
	}
	return u, nil
}

// Everything are the rules of an administrator.
func Everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{rbacv1.VerbAll}, APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}},
		{Verbs: []string{rbacv1.VerbAll}, NonResourceURLs: []string{rbacv1.NonResourceAll}},
	}
}

func (u *User) role() string { return "user-" + u.name }

// Name returns the name by which the API server knows the user.
func (u *User) Name() string { return "system:serviceaccount:" + UserNamespace + ":" + u.name }

// Subject returns the user as RBAC's bindings name it.
func (u *User) Subject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: UserNamespace, Name: u.name}
}

// SetRules gives the user other rights. The API server heeds them a moment later.
func (u *User) SetRules(ctx context.Context, rules ...rbacv1.PolicyRule) error {
	roles := u.clients.RbacV1().ClusterRoles()
	role, err := roles.Get(ctx, u.role(), metav1.GetOptions{})
	if err == nil {
		role.Rules = rules
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("set rules of user %s: %w", u.name, err)
	}
	return nil
}

// Issue returns a new token of the user, valid for an hour or until it is revoked. Tokens are independent of each other.
func (u *User) Issue(ctx context.Context) (*Token, error) {
	// A token that is bound to an object is good as long as that object exists.
	secret, err := u.clients.CoreV1().Secrets(UserNamespace).Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: u.name + "-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("issue token of user %s: %w", u.name, err)
	}
	answer, err := u.clients.CoreV1().ServiceAccounts(UserNamespace).CreateToken(ctx, u.name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("issue token of user %s: %w", u.name, err)
	}
	credential := u.plane.credential(u.name, keyPair{})
	credential.token = answer.Status.Token
	return &Token{Credential: credential, user: u, secret: secret.Name}, nil
}

// Token is a bearer token of a [User].
type Token struct {
	*Credential
	user   *User
	secret string
}

// Revoke makes the token invalid. kube-apiserver remembers for 10 s whom a token has authenticated, and no flag
// changes that: a token used within the last 10 s works that much longer ([ControlPlane.Restart] makes it
// forget); any other is refused with 401 from now on.
func (t *Token) Revoke(ctx context.Context) error {
	if err := t.user.clients.CoreV1().Secrets(UserNamespace).Delete(ctx, t.secret, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("revoke token of user %s: %w", t.user.name, err)
	}
	return nil
}

// ClientCertificate returns a client certificate for a user in the given groups. The user has what RBAC binds to
// these names; the group system:masters may do everything. It is valid as long as the control plane lives, and cannot be revoked.
func (c *ControlPlane) ClientCertificate(user string, groups ...string) (*Credential, error) {
	pair, err := c.identities.clients.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return c.credential(user, pair), nil
}
