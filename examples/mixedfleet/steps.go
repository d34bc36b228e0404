package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
)

// Public names: the backend's name, then how the inventory calls the cluster.
func profileName(name string) multicluster.ClusterName {
	return aggregate.FormatName(inventoryBackend, "", profileNamespace+"/"+name)
}
func clusterName(name string) multicluster.ClusterName {
	return aggregate.FormatName(capiBackend, "", clusterNamespace+"/"+name)
}
func kubeconfigName(name string) multicluster.ClusterName {
	return aggregate.FormatName(kubeconfigBackend, "", secretNamespace+"/"+name)
}

// steps are the tour.
func (t *tour) steps() []step {
	return []step{
		{"engage", "Four entries in three inventories: one controller works in all of them.", t.engage},
		{"bad-input", "Three entries that are no good: listed with a reason, and nobody else notices.", t.badInput},
		{"react", "A ConfigMap is created in each member: the controller reacts within a second.", t.react},
		{"rotate", "The token in " + string(kubeconfigName(lima)) + " is rotated, the old one revoked.", t.rotate},
		{"add-inventory", "A cluster joins through the Cluster Inventory API: a ClusterProfile, and a Secret for us.",
			t.add(profileName(nairobi), t.stage.addProfile)},
		{"add-capi", "A cluster joins through Cluster API: a Cluster, and its kubeconfig Secret.",
			t.add(clusterName(nairobi), t.stage.addCluster)},
		{"add-kubeconfig", "A cluster joins as a kubeconfig in a labelled Secret.",
			t.add(kubeconfigName(nairobi), t.stage.addKubeconfig)},
		{"silence", osaka + " accepts connections and never answers: the others go on.", t.silence},
		{"return", osaka + " answers again.", t.comeBack},
		{"remove", "The Cluster " + clusterNamespace + "/" + nairobi + " is deleted from the hub.", t.remove},
	}
}

// issue returns a kubeconfig with a new token for a member.
func (t *tour) issue(ctx context.Context, name multicluster.ClusterName) ([]byte, error) {
	token, err := t.member(name).user.Issue(ctx)
	if err != nil {
		return nil, err
	}
	t.tokens[name] = token
	return token.Kubeconfig(), nil
}

// member returns the member that a public name stands for: here, they end with its name.
func (t *tour) member(name multicluster.ClusterName) *member {
	return t.stage.members[path.Base(string(name))]
}

// prepare fills the inventories. It is done before the tour, and before the controller runs.
func (t *tour) prepare(ctx context.Context) error {
	if err := t.stage.prepareHub(ctx); err != nil {
		return err
	}
	for _, entry := range []struct {
		name multicluster.ClusterName
		list func(ctx context.Context, name string, kubeconfig []byte) error
	}{
		{profileName(berlin), t.stage.addProfile},
		{clusterName(osaka), t.stage.addCluster},
		{kubeconfigName(lima), t.stage.addKubeconfig},
		{kubeconfigName(berlin), t.stage.addKubeconfig}, // the same cluster, listed once more
	} {
		kubeconfig, err := t.issue(ctx, entry.name)
		if err != nil {
			return err
		}
		if err := entry.list(ctx, path.Base(string(entry.name)), kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) engage(ctx context.Context) (string, error) {
	names := []multicluster.ClusterName{profileName(berlin), clusterName(osaka), kubeconfigName(lima), kubeconfigName(berlin)}
	for _, name := range names {
		if err := t.worksIn(ctx, name); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d entries engaged, all ConfigMaps labelled; %s is listed twice, in two inventories", len(names), berlin), nil
}

// worksIn waits until a cluster is engaged and the controller has seen and labelled what was there already. From then
// on the tour expects it to work.
func (t *tour) worksIn(ctx context.Context, name multicluster.ClusterName) error {
	if err := t.ready(ctx, name); err != nil {
		return err
	}
	if !slices.Contains(t.working, name) {
		t.working = append(t.working, name)
	}
	_, err := until(ctx, fmt.Sprintf("ConfigMaps of %s seen and labelled", name), func() (bool, error) {
		for _, cm := range meals {
			if !t.fleet.tally.has(name, types.NamespacedName{Namespace: workNamespace, Name: cm}) {
				return false, nil
			}
			if ok, err := t.member(name).labelled(ctx, name, cm); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	})
	return err
}

// reaches waits until a cluster is in a state, for a reason unless that is empty.
func (t *tour) reaches(ctx context.Context, name multicluster.ClusterName, state backends.State, reason backends.Reason) error {
	return t.becomes(ctx, name, fmt.Sprintf("%s %s", state, reason), func(s aggregate.ClusterStatus) bool {
		return s.State == state && (reason == "" || s.Reason == reason)
	})
}

// ready waits until a cluster is engaged and well, and the controller has it.
func (t *tour) ready(ctx context.Context, name multicluster.ClusterName) error {
	return t.becomes(ctx, name, "ready", aggregate.ClusterStatus.Ready)
}

func (t *tour) becomes(ctx context.Context, name multicluster.ClusterName, what string, is func(aggregate.ClusterStatus) bool) error {
	_, err := until(ctx, fmt.Sprintf("%s %s", name, what), func() (bool, error) { return is(t.status(name)), nil })
	if err != nil {
		s := t.status(name)
		return fmt.Errorf("%w; it is %s (%s): %s", err, s.State, s.Reason, s.Message)
	}
	return nil
}

// status returns a cluster's status; the zero one if it is not listed.
func (t *tour) status(name multicluster.ClusterName) aggregate.ClusterStatus {
	for _, c := range t.fleet.Clusters() {
		if c.Name == name {
			return c
		}
	}
	return aggregate.ClusterStatus{}
}

func (t *tour) badInput(ctx context.Context) (string, error) {
	before := t.engagements(t.working...)
	if err := t.stage.addProfile(ctx, "no-access", nil); err != nil {
		return "", err
	}
	if err := t.stage.addCluster(ctx, "no-secret", nil); err != nil {
		return "", err
	}
	if err := t.stage.addKubeconfig(ctx, "unusable", []byte("this is no kubeconfig")); err != nil {
		return "", err
	}
	var said []string
	for _, want := range []struct {
		name   multicluster.ClusterName
		state  backends.State
		reason backends.Reason
	}{
		{profileName("no-access"), backends.Pending, backends.ReasonNoAccess},
		{clusterName("no-secret"), backends.Pending, backends.ReasonSecretNotFound},
		{kubeconfigName("unusable"), backends.Rejected, backends.ReasonInvalidKubeconfig},
	} {
		if err := t.reaches(ctx, want.name, want.state, want.reason); err != nil {
			return "", err
		}
		said = append(said, fmt.Sprintf("%s is %s (%s): %s", want.name, want.state, want.reason, t.status(want.name).Message))
	}
	if _, err := t.reactIn(ctx, t.working); err != nil {
		return "", fmt.Errorf("the others: %w", err)
	}
	if err := t.unmoved(before); err != nil {
		return "", err
	}
	return strings.Join(said, "\n      "), nil
}

// add returns a step that lists the fourth member in an inventory.
func (t *tour) add(name multicluster.ClusterName, list func(ctx context.Context, name string, kubeconfig []byte) error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := t.stage.awaitLate(ctx); err != nil {
			return "", err
		}
		kubeconfig, err := t.issue(ctx, name)
		if err != nil {
			return "", err
		}
		if err := list(ctx, path.Base(string(name)), kubeconfig); err != nil {
			return "", err
		}
		listed := time.Now()
		if err := t.worksIn(ctx, name); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s engaged and worked in %s after it was listed", name, since(listed)), nil
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

// reactionLimit is how soon the controller has to react to a new object.
const reactionLimit = time.Second

func (t *tour) react(ctx context.Context) (string, error) {
	slowest, err := t.reactIn(ctx, t.working)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("seen under %d names and labelled, the slowest %s after its creation", len(t.working), slowest), nil
}

// engagements returns how often each of the clusters was engaged so far.
func (t *tour) engagements(names ...multicluster.ClusterName) map[multicluster.ClusterName]int {
	times := map[multicluster.ClusterName]int{}
	for _, name := range names {
		times[name], _ = t.fleet.attendance.of(name)
	}
	return times
}

// unmoved returns an error if one of the clusters was engaged anew since, or is not engaged any longer.
func (t *tour) unmoved(before map[multicluster.ClusterName]int) error {
	for name, times := range before {
		if now, engaged := t.fleet.attendance.of(name); now != times || !engaged {
			return fmt.Errorf("%s was engaged %d times before and %d now; engaged at present: %t", name, times, now, engaged)
		}
	}
	return nil
}

// others returns the names of all clusters that are to work but the given one.
func (t *tour) others(name multicluster.ClusterName) []multicluster.ClusterName {
	return slices.DeleteFunc(slices.Clone(t.working), func(n multicluster.ClusterName) bool { return n == name })
}

// reactIn creates a ConfigMap in each member that the names stand for, and waits until the controller has seen it
// under every name, and labelled it. It returns how long the slowest took, which is an error beyond the limit.
func (t *tour) reactIn(ctx context.Context, names []multicluster.ClusterName) (time.Duration, error) {
	t.snacks++
	cm := fmt.Sprintf("snack-%d", t.snacks)
	created := map[*member]time.Time{}
	for _, name := range names {
		m := t.member(name)
		if created[m].IsZero() {
			if err := m.create(ctx, cm); err != nil {
				return 0, err
			}
			created[m] = time.Now()
		}
	}
	took := make([]time.Duration, len(names))
	group, ctx := errgroup.WithContext(ctx)
	for i, name := range names {
		group.Go(func() error {
			m := t.member(name)
			_, err := until(ctx, fmt.Sprintf("new ConfigMap of %s seen and labelled", name), func() (bool, error) {
				if !t.fleet.tally.has(name, types.NamespacedName{Namespace: workNamespace, Name: cm}) {
					return false, nil
				}
				return m.labelled(ctx, name, cm)
			})
			took[i] = since(created[m])
			if err == nil && took[i] > reactionLimit {
				err = fmt.Errorf("the reaction in %s took %s", name, took[i])
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	var slowest time.Duration
	for _, d := range took {
		slowest = max(slowest, d)
	}
	return slowest, nil
}

func (t *tour) rotate(ctx context.Context) (string, error) {
	name := kubeconfigName(lima) // listed once, so nobody else could do its work
	running, err := t.fleet.Get(ctx, name)
	if err != nil {
		return "", err
	}
	before := t.engagements(name)
	old := t.tokens[name]
	kubeconfig, err := t.issue(ctx, name)
	if err != nil {
		return "", err
	}
	if err := t.stage.replaceKubeconfig(ctx, kubeconfigSecret(lima), kubeconfig); err != nil {
		return "", err
	}
	if err := old.Revoke(ctx); err != nil {
		return "", err
	}
	t.screen.say("  waiting until the API server refuses the old token: it remembers tokens for up to 10 s ...")
	holder, err := clientFor(old.Config())
	if err != nil {
		return "", err
	}
	refusedAfter, err := until(ctx, "old token refused", func() (bool, error) {
		var cms corev1.ConfigMapList
		err := holder.List(ctx, &cms, client.InNamespace(workNamespace), client.Limit(1))
		return apierrors.IsUnauthorized(err), nil
	})
	if err != nil {
		return "", err
	}
	reaction, err := t.reactIn(ctx, []multicluster.ClusterName{name})
	if err != nil {
		return "", err
	}
	if err := t.ready(ctx, name); err != nil {
		return "", err
	}
	now, err := t.fleet.Get(ctx, name)
	if err != nil {
		return "", err
	}
	if now != running {
		return "", fmt.Errorf("%s is served by another cluster.Cluster", name)
	}
	if err := t.unmoved(before); err != nil {
		return "", err
	}
	config, err := t.fleet.RESTConfigFor(ctx, name)
	if err != nil {
		return "", err
	}
	if config.BearerToken != t.tokens[name].Token() {
		return "", fmt.Errorf("%s does not run upon its new token", name)
	}
	return fmt.Sprintf("the old token is refused (after %s), the controller reacts (in %s), and nothing was engaged anew",
		refusedAfter.Round(time.Millisecond), reaction), nil
}

func (t *tour) silence(ctx context.Context) (string, error) {
	name := clusterName(osaka)
	if err := t.member(name).plane.Pause(); err != nil {
		return "", err
	}
	silent := time.Now()
	others := t.others(name)
	before := t.engagements(others...)
	slowest, err := t.reactIn(ctx, others)
	if err != nil {
		return "", fmt.Errorf("the others: %w", err)
	}
	if err := t.reaches(ctx, name, backends.Disconnected, ""); err != nil {
		return "", err
	}
	lost := since(silent)
	if _, err := t.fleet.Get(ctx, name); !errors.Is(err, backends.ErrNotEngaged) {
		return "", fmt.Errorf("get %s: want an error that says not engaged, got: %w", name, err)
	}
	again, err := t.reactIn(ctx, others)
	if err != nil {
		return "", fmt.Errorf("the others: %w", err)
	}
	if err := t.unmoved(before); err != nil {
		return "", err
	}
	return fmt.Sprintf("disconnected after %s; meanwhile the other %d entries reacted, the slowest in %s", lost, len(others), max(slowest, again)), nil
}

func (t *tour) comeBack(ctx context.Context) (string, error) {
	name := clusterName(osaka)
	if err := t.member(name).plane.Resume(); err != nil {
		return "", err
	}
	back := time.Now()
	if err := t.worksIn(ctx, name); err != nil {
		return "", err
	}
	engaged := since(back)
	reaction, err := t.reactIn(ctx, []multicluster.ClusterName{name})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("engaged again %s later; a new ConfigMap is labelled in %s", engaged, reaction), nil
}

func (t *tour) remove(ctx context.Context) (string, error) {
	t.before = t.fleet.table().list()
	name := clusterName(nairobi)
	removed := time.Now()
	if err := t.stage.removeCluster(ctx, nairobi); err != nil {
		return "", err
	}
	_, err := until(ctx, string(name)+" gone", func() (bool, error) {
		_, err := t.fleet.Get(ctx, name)
		_, engaged := t.fleet.attendance.of(name)
		return errors.Is(err, multicluster.ErrClusterNotFound) && !engaged && t.status(name).Name == "", nil
	})
	if err != nil {
		return "", err
	}
	gone := since(removed)
	t.working = t.others(name)
	if _, err := t.reactIn(ctx, t.working); err != nil {
		return "", fmt.Errorf("the others: %w", err)
	}
	return fmt.Sprintf("disengaged and forgotten %s later; %s goes on under its two other names", gone, nairobi), nil
}
