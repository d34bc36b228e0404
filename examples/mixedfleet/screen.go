package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// screen shows narration and, below it, the table. On a terminal the table is redrawn in place; elsewhere it is
// printed again when it means something new. Its methods may be called concurrently.
type screen struct {
	out    io.Writer
	size   func() (width, height int, err error) // of the terminal; nil if out is none
	colour bool

	mu      sync.Mutex
	table   func() table // set by show; nil before
	drawn   []byte       // the table on the terminal; empty if there is none
	printed table        // the table as it was when it was last printed
	partial []byte       // of a line that Write has the beginning of
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		s.size = func() (int, int, error) { return term.GetSize(int(f.Fd())) }
		_, colourless := os.LookupEnv("NO_COLOR") // https://no-color.org
		s.colour = !colourless
	}
	return s
}

// live reports whether the table is redrawn in place.
func (s *screen) live() bool { return s.size != nil }

// say prints a line of narration.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(fmt.Sprintf(format, args...))
}

// Write prints whole lines as say does. It is for what others report: the build of control planes, and logs.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial = append(s.partial, p...)
	for {
		line, rest, complete := bytes.Cut(s.partial, []byte("\n"))
		if !complete {
			return len(p), nil
		}
		s.line(string(line))
		s.partial = rest
	}
}

func (s *screen) line(text string) {
	below := s.drawn
	s.erase()
	fmt.Fprintln(s.out, text)
	s.draw(below)
}

// show gives the screen its table.
func (s *screen) show(t func() table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = t
}

// run keeps the table on a terminal up to date until ctx ends.
func (s *screen) run(ctx context.Context) {
	if s.live() {
		s.follow(ctx, 200*time.Millisecond)
	}
}

// follow refreshes the table at an interval until ctx ends.
func (s *screen) follow(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.refresh()
		}
	}
}

// refresh shows the table as it is now. Where it is not redrawn in place, only rows are printed that say
// something new.
func (s *screen) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil {
		return
	}
	t := s.table()
	var b bytes.Buffer
	if s.live() {
		fmt.Fprintln(&b)
		t.write(&b, time.Now(), s.style())
		if !bytes.Equal(b.Bytes(), s.drawn) {
			s.erase()
			s.draw(b.Bytes())
		}
		return
	}
	news := t.since(s.printed)
	s.printed = t
	if len(news.rows) > 0 || len(news.notes) > 0 {
		news.write(&b, time.Now(), style{})
		_, _ = s.out.Write(b.Bytes())
	}
}

// conclude shows the whole table for the last time.
func (s *screen) conclude() {
	s.mu.Lock()
	s.printed = table{}
	s.mu.Unlock()
	s.refresh()
}

// erase takes the table off the terminal. The caller holds mu.
func (s *screen) erase() {
	if n := bytes.Count(s.drawn, []byte("\n")); n > 0 {
		fmt.Fprintf(s.out, "\r\x1b[%dA\x1b[J", n)
	}
	s.drawn = nil
}

// draw puts a table on the terminal. The caller holds mu.
func (s *screen) draw(t []byte) {
	_, _ = s.out.Write(t)
	s.drawn = t
}

// style makes a table fit into the terminal: what is larger cannot be redrawn in place.
func (s *screen) style() style {
	const around = 6 // lines for the table's head and what is above and below it
	width, height, err := s.size()
	if err != nil {
		width, height = 80, 24
	}
	return style{colour: s.colour, width: width, maxRows: max(1, height-around)}
}
