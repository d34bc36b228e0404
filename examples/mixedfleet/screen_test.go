package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// terminal understands what a screen writes to one: text, and "up n lines, then clear to the end".
type terminal struct{ lines []string }

func (t *terminal) feed(written string) {
	for _, line := range strings.Split(strings.TrimSuffix(written, "\n"), "\n") {
		for strings.HasPrefix(line, "\r\x1b[") {
			var up int
			rest, _ := strings.CutPrefix(line, "\r\x1b[")
			if _, err := fmt.Sscanf(rest, "%dA", &up); err != nil {
				panic(err)
			}
			t.lines = t.lines[:len(t.lines)-up]
			_, line, _ = strings.Cut(rest, "A\x1b[J")
		}
		t.lines = append(t.lines, line)
	}
}

func TestTableStaysBelowNarration(t *testing.T) {
	var b bytes.Buffer
	s := newScreen(&b)
	s.size = func() (int, int, error) { return 17, 24, nil }
	current := exampleTable()
	current.notes = nil
	current.rows = current.rows[:1]
	s.show(func() table { return current })

	s.say("first")
	s.refresh()
	s.say("second")
	if _, err := fmt.Fprint(s, "third\nfour"); err != nil {
		t.Fatal(err)
	}
	current.rows = exampleTable().rows[:2]
	s.refresh()
	if _, err := fmt.Fprint(s, "th\n"); err != nil {
		t.Fatal(err)
	}

	var screen terminal
	screen.feed(b.String())
	want := []string{"first", "second", "third", "fourth", "", "NAME", "capi/infra/osaka", "inventory/fleet/b"}
	got := screen.lines
	for i := range got {
		got[i] = strings.TrimRight(got[i], " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where there is no terminal, nothing is said twice, and no escape sequence is written.
func TestWithoutTerminalOnlyNewsIsPrinted(t *testing.T) {
	var b bytes.Buffer
	s := newScreen(&b)
	current := exampleTable()
	s.show(func() table { return current })
	s.refresh()
	whole := b.String()
	if diff := cmp.Diff(5, strings.Count(whole, "\n")); diff != "" {
		t.Errorf("lines of the table (-want +got):\n%s\n%s", diff, whole)
	}
	s.refresh()
	current.rows = current.rows[1:]
	s.refresh()
	s.conclude()
	after := strings.TrimPrefix(b.String(), whole)
	news, last, _ := strings.Cut(after, "\n")
	if news != "capi/infra/osaka is gone" {
		t.Errorf("news: %q", news)
	}
	if got := strings.Count(last, "\n"); got != 4 {
		t.Errorf("conclude printed %d lines, want the whole table, 4:\n%s", got, last)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("escape sequences: %q", b.String())
	}
}
