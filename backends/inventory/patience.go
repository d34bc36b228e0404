package inventory

import "time"

// patience says for how long members have lacked something, and when that is too long. It is for one goroutine.
type patience struct {
	limit time.Duration        // at least; zero: for ever
	since map[string]time.Time // by member that lacks it
}

// lacks notes that a member lacks it now. It returns whether that has been so for too long, and when to look again: the
// zero time if never. While the hub is in trouble nothing is counted, since what it said last may be true no more.
func (p *patience) lacks(member string, now time.Time, trouble bool) (tooLong bool, again time.Time) {
	if p.limit == 0 {
		return false, time.Time{}
	}
	since, ok := p.since[member]
	if !ok || trouble {
		since = now
		if p.since == nil {
			p.since = map[string]time.Time{}
		}
		p.since[member] = since
	}
	if again = since.Add(p.limit); again.After(now) {
		return false, again
	}
	return true, time.Time{}
}

// has notes that a member does not lack it, or is gone.
func (p *patience) has(member string) { delete(p.since, member) }
