package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tributary-fleet/tributary/aggregate"
	"github.com/tributary-fleet/tributary/backends"
)

// table is what people see of the fleet at one moment.
type table struct {
	rows []row
	// notes stand below the rows: what is wrong with whole backends, for instance.
	notes []string
}

// row is one cluster.
type row struct {
	name, backend  string
	state          backends.State
	reason         backends.Reason
	version        string
	objects        int
	objectAt       time.Time // when the controller last heard of an object; zero if it never did
	stateChangedAt time.Time
}

// table returns the fleet as it is now.
func (f *fleet) table() table {
	var t table
	for _, c := range f.Clusters() {
		objects, at := f.tally.count(c.Name)
		t.rows = append(t.rows, rowOf(c, objects, at))
	}
	if len(t.rows) == 0 {
		t.notes = append(t.notes, "no cluster is listed")
	}
	for _, b := range f.Backends() {
		if b.Health.Reason != "" && b.Health.Reason != backends.ReasonStarting {
			t.notes = append(t.notes, fmt.Sprintf("backend %s: %s: %s", b.Name, b.Health.Reason, b.Health.Message))
		}
	}
	return t
}

func rowOf(c aggregate.ClusterStatus, objects int, at time.Time) row {
	return row{
		name: c.Name.String(), backend: c.Backend, state: c.State, reason: c.Reason, version: c.Version,
		objects: objects, objectAt: at, stateChangedAt: c.Since,
	}
}

// since returns what is new since an earlier table, besides counts and ages.
func (t table) since(earlier table) (news table) {
	was := map[string]row{}
	for _, r := range earlier.rows {
		was[r.name] = r
	}
	for _, r := range t.rows {
		old, known := was[r.name]
		delete(was, r.name)
		if !known || r.state != old.state || r.reason != old.reason || r.version != old.version {
			news.rows = append(news.rows, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		news.notes = append(news.notes, name+" is gone")
	}
	for _, note := range t.notes {
		if !slices.Contains(earlier.notes, note) {
			news.notes = append(news.notes, note)
		}
	}
	return news
}

// style says how a table is written.
type style struct {
	colour bool
	// width is where lines are cut off; 0: nowhere.
	width int
	// maxRows is how many rows are written at most; 0: all. Clusters that are not Engaged come first then.
	maxRows int
}

// heads are the columns' heads.
var heads = [...]string{"NAME", "BACKEND", "STATE", "VERSION", "OBJECTS", "LAST EVENT"}

// write writes the table as it looks at a moment.
func (t table) write(w io.Writer, now time.Time, s style) {
	rows, more := t.shown(s.maxRows)
	if len(rows) > 0 {
		lines := [][len(heads)]string{heads}
		for _, r := range rows {
			lines = append(lines, r.cells(now))
		}
		var widths [len(heads)]int
		for _, cells := range lines {
			for i, cell := range cells {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
		for n, cells := range lines {
			colours := [len(heads)]string{}
			if n == 0 {
				for i := range colours {
					colours[i] = bold
				}
			} else {
				colours[2] = colourOf(rows[n-1].state)
			}
			fmt.Fprintln(w, s.line(cells[:], widths[:], colours[:]))
		}
	}
	if more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	for _, note := range t.notes {
		fmt.Fprintln(w, s.line([]string{note}, []int{0}, []string{red}))
	}
}

// line lays out one line.
func (s style) line(cells []string, widths []int, colours []string) string {
	var b strings.Builder
	used := 0
	for i, cell := range cells {
		text := []rune(cell)
		if s.width > 0 {
			text = text[:min(len(text), max(0, s.width-used))]
		}
		if s.colour && colours[i] != "" {
			b.WriteString(colours[i] + string(text) + plain)
		} else {
			b.WriteString(string(text))
		}
		if i < len(cells)-1 {
			gap := widths[i] - len([]rune(cell)) + 2
			used += widths[i] + 2
			if s.width == 0 || used < s.width {
				b.WriteString(strings.Repeat(" ", gap))
			}
		}
	}
	return b.String()
}

// shown returns the rows to show, in the order of their names, and how many are left out.
func (t table) shown(limit int) (rows []row, more int) {
	if limit == 0 || len(t.rows) <= limit {
		return t.rows, 0
	}
	rows = slices.Clone(t.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return rank(a) - rank(b) })
	rows = rows[:limit]
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	return rows, len(t.rows) - limit
}

func rank(r row) int {
	if r.state == backends.Engaged {
		return 1
	}
	return 0
}

func (r row) cells(now time.Time) [len(heads)]string {
	version, objects := r.version, "-"
	if version == "" {
		version = "-"
	}
	if !r.objectAt.IsZero() {
		objects = strconv.Itoa(r.objects)
	}
	event := "state " + age(now.Sub(r.stateChangedAt))
	if r.objectAt.After(r.stateChangedAt) {
		event = "object " + age(now.Sub(r.objectAt))
	}
	return [...]string{r.name, r.backend, fmt.Sprintf("%s (%s)", r.state, r.reason), version, objects, event}
}

// age says for people how long ago something was.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	default:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
}

// ANSI sequences.
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

func colourOf(s backends.State) string {
	switch s {
	case backends.Engaged:
		return green
	case backends.Disconnected, backends.Rejected:
		return red
	default:
		return yellow
	}
}
