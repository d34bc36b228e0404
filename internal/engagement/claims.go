package engagement

import (
	"cmp"
	"slices"
)

// claims are the names that are known to lead to each cluster, by the cluster's kube-system UID, in order: by the rank
// of the source that serves a name, then by name. Names that lead to it and are not engaged are not known, except those
// that are shadowed. Guarded by Engine.mu.
//
// A cluster can claim to be any other. So the first in order is never affected by what comes after it.
type claims map[string][]*member

// claimed is the cluster that a name is known to lead to; zero if none is known.
type claimed struct {
	uid  string
	rank int
}

// compare orders names that lead to the same cluster.
func (m *member) compare(o *member) int {
	return cmp.Or(cmp.Compare(m.claimed.rank, o.claimed.rank), cmp.Compare(m.name, o.name))
}

// claim brings the claims up to date with what is known of a name after a step, and has the machines of the names
// concerned told. The caller holds mu.
func (e *Engine) claim(m *member) {
	now := m.leadsTo()
	if now == m.claimed {
		return
	}
	before := m.claimed
	e.move(m, now)
	e.tellClaims(before.uid)
	if now.uid != before.uid {
		e.tellClaims(now.uid)
	}
	if m.claimed.uid == "" && m.machine.claim != (claim{}) && e.has(m) {
		e.step(m, Claimed{})
	}
}

// leadsTo returns the cluster that a name is known to lead to.
func (m *member) leadsTo() claimed {
	switch r := m.machine.current; {
	case r != nil && r.link.Facts.UID != "":
		now := claimed{r.link.Facts.UID, m.claimed.rank}
		if c := m.machine.serving(); c != nil {
			now.rank = c.source.Rank
		}
		return now
	case r == nil && m.machine.claim.shadowed:
		return m.claimed
	default:
		return claimed{}
	}
}

// move puts a name where it belongs now.
func (e *Engine) move(m *member, to claimed) {
	if uid := m.claimed.uid; uid != "" {
		e.opts.Metrics.duplicated(-min(1, len(e.claims[uid])-1))
		e.claims[uid] = slices.DeleteFunc(e.claims[uid], func(o *member) bool { return o == m })
		if len(e.claims[uid]) == 0 {
			delete(e.claims, uid)
		}
	}
	m.claimed = to
	if to.uid == "" {
		return
	}
	group := e.claims[to.uid]
	e.opts.Metrics.duplicated(min(1, len(group)))
	at, _ := slices.BinarySearchFunc(group, m, (*member).compare)
	e.claims[to.uid] = slices.Insert(group, at, m)
}

// tellClaims tells the names that lead to a cluster how they stand to each other, where that is news to them.
func (e *Engine) tellClaims(uid string) {
	for i, m := range slices.Clone(e.claims[uid]) {
		group := e.claims[uid]
		if i >= len(group) || group[i] != m {
			return // the step before has changed them, and told
		}
		news := claim{uid: uid, others: len(group) - 1}
		if i > 0 {
			news = claim{uid: uid, first: group[0].name, shadowed: e.opts.ServeOnce}
		}
		if m.machine.claim != news && (len(group) > 1 || m.machine.claim != claim{}) {
			e.step(m, Claimed{news.uid, news.first, news.others, news.shadowed})
		}
	}
}

// preempt has a name shadowed that is about to be engaged, if another one before it serves the cluster already.
func (e *Engine) preempt(m *member, link Link) {
	source := m.machine.bySource(link.Source)
	if !e.opts.ServeOnce || source == nil || m.machine.current != nil || link.Facts.UID == "" {
		return
	}
	before := m.claimed
	e.move(m, claimed{link.Facts.UID, source.source.Rank})
	if e.claims[link.Facts.UID][0] == m {
		e.move(m, before)
		return
	}
	e.tellClaims(link.Facts.UID)
}
