package engagement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// TestMachine runs the scripts of testdata/machine. Each is a story of one public name: a command is an event, below
// it stand the actions that it causes, the status that people see, and when the machine wants to be woken.
func TestMachine(t *testing.T) {
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		s := newStory(Timing{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.tell(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

// story is a machine, and the time of the story.
type story struct {
	machine *Machine
	now     time.Time
	start   time.Time
	news    uint64 // of watches, so far
}

func newStory(timing Timing) *story {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &story{machine: NewMachine(timing), now: start, start: start}
}

// tell turns a command into an event, and returns what comes of it.
//
// Sources are named "name" or "name:rank"; jitter is always 1, so backoffs are at their longest.
func (s *story) tell(d *datadriven.TestData) (string, error) {
	arg := func(key string) string {
		for _, a := range d.CmdArgs {
			if a.Key == key && len(a.Vals) > 0 {
				return a.Vals[0]
			}
		}
		return ""
	}
	has := func(key string) bool { return d.HasArg(key) }
	number := func(key string) (n uint64) {
		if v := arg(key); v != "" {
			if _, err := fmt.Sscan(v, &n); err != nil {
				d.Fatalf(nil, "%s=%s: %v", key, v, err)
			}
		}
		return n
	}
	source := func() Source {
		name, rank, _ := strings.Cut(arg("from"), ":")
		src := Source{Name: name}
		_, _ = fmt.Sscan(rank, &src.Rank)
		src.Replace = has("replace")
		if wait := arg("not-before"); wait != "" {
			after, err := time.ParseDuration(wait)
			if err != nil {
				d.Fatalf(nil, "not-before=%s: %v", wait, err)
			}
			src.NotBefore = s.now.Add(after)
		}
		return src
	}
	failure := func() *Failure {
		if r := arg("failed"); r != "" {
			return &Failure{backends.Reason(r), strings.ToLower(r)}
		}
		return nil
	}

	var event Event
	switch d.Cmd {
	case "after":
		wait, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			return "", err
		}
		s.now = s.now.Add(wait)
		event = Tick{}
	case "declare":
		event = Declared{source(), backends.Cluster{Name: "member", Connection: connection.Spec{
			Endpoint: connection.Endpoint{Server: "https://" + arg("server")},
			Auth:     connection.Auth{Token: connection.NewSecret(arg("token"))},
		}, Info: backends.Info{DisplayName: arg("title")}, Hints: backends.Identity{
			MemberID: arg("member-id"), ClusterID: arg("cluster-id"), ClusterSet: arg("cluster-set"),
		}}}
	case "hold":
		event = Held{source(), "member", backends.Hold{Reason: backends.Reason(arg("reason")), Keep: has("keep"), Rejected: has("rejected")}}
	case "rank":
		event = Ranked{source()}
	case "claimed":
		event = Claimed{UID: arg("uid"), First: arg("first"), Others: int(number("others")), Shadowed: has("shadowed")}
	case "withdraw":
		event = Withdrawn{source().Name, backends.Reason(arg("reason"))}
	case "connected":
		event = Connected{
			Generation: number("gen"), SwapOnly: number("swap"), Jitter: 1,
			Facts: Facts{UID: arg("uid"), User: arg("user"), Rights: arg("user"), MayWatch: has("may-watch")},
		}
	case "connect-failed":
		event = ConnectFailed{number("gen"), Failure{backends.Reason(arg("reason")), strings.ToLower(arg("reason"))}, 1}
	case "handed-over":
		event = EngageReturned{number("engagement"), failure(), 1}
	case "synced":
		event = Synced{number("engagement")}
	case "probed":
		event = Probed{number("engagement"), number("gen"), failure(), arg("uid"), 1}
	case "unauthorized":
		event = Unauthorized{number("engagement"), number("gen")}
	case "watches":
		s.news++
		event = WatchesChanged{Engagement: number("engagement"), Pending: arg("pending"), Order: s.news}
		if f := failure(); f != nil {
			event = WatchesChanged{Engagement: number("engagement"), Failed: *f, Order: s.news}
		}
	case "ended-by-itself":
		event = Stopped{number("engagement"), Failure{backends.ReasonEngageFailed, "ended"}, 1}
	case "drained":
		event = Drained{number("engagement")}
	default:
		return "", fmt.Errorf("unknown command %q", d.Cmd)
	}
	var out strings.Builder
	for _, a := range s.machine.Step(s.now, event) {
		fmt.Fprintln(&out, describeAction(a))
	}
	s.describe(&out)
	return out.String(), nil
}

func (s *story) describe(out *strings.Builder) {
	st := s.machine.Status()
	fmt.Fprintf(out, "= %s (%s)", st.State, st.Reason)
	if st.Message != "" {
		fmt.Fprintf(out, " %q", st.Message)
	}
	if st.Source != "" {
		fmt.Fprintf(out, " by %s", st.Source)
	}
	if st.Attempt > 0 {
		fmt.Fprintf(out, ", %d failed", st.Attempt)
	}
	if !st.NextTry.IsZero() {
		fmt.Fprintf(out, ", next try in %v", st.NextTry.Sub(s.now))
	}
	if at := s.machine.WakeAt(); !at.IsZero() {
		fmt.Fprintf(out, "; wake in %v", at.Sub(s.now))
	}
	if s.machine.Idle() {
		out.WriteString("; forgotten")
	}
	out.WriteString("\n")
	for _, c := range st.Candidates {
		fmt.Fprintf(out, "  %s: %s (%s)\n", c.Source, c.State, c.Reason)
	}
}

func describeAction(a Action) string {
	switch a := a.(type) {
	case Connect:
		out := fmt.Sprintf("connect to %s as generation %d", a.Link.Connection.Endpoint.Server, a.Generation)
		if a.SwapOnly {
			out += ", to be swapped only"
		}
		if a.Running != 0 {
			out += fmt.Sprintf(", while engagement %d runs", a.Running)
		}
		return out
	case CancelConnect:
		return fmt.Sprintf("cancel generation %d", a.Generation)
	case Discard:
		return fmt.Sprintf("discard generation %d", a.Generation)
	case Engage:
		return fmt.Sprintf("engage %d upon generation %d", a.Engagement, a.Generation)
	case Swap:
		return fmt.Sprintf("swap generation %d under engagement %d", a.Generation, a.Engagement)
	case Disengage:
		return fmt.Sprintf("disengage %d (%s)", a.Engagement, a.Reason)
	case Probe:
		return fmt.Sprintf("probe engagement %d", a.Engagement)
	default:
		return fmt.Sprintf("%T", a)
	}
}

// A cluster that is down for 2 s and up for 10 s, over and over, is never disengaged: no five probes in a row fail.
func TestFlappingDisengagesNothing(t *testing.T) {
	s := newStory(Timing{})
	at := func(event Event) []Action { return s.machine.Step(s.now, event) }
	at(Declared{Source{Name: "capi"}, backends.Cluster{Name: "member", Connection: connection.Spec{Endpoint: connection.Endpoint{Server: "https://one"}}}})
	at(Connected{Generation: 1, Facts: Facts{UID: "u", User: "user", Rights: "user"}})
	at(EngageReturned{Engagement: 1})
	at(Synced{1})
	const down, up = 2 * time.Second, 10 * time.Second
	probes, failed := 0, 0
	for end := s.now.Add(30 * (down + up)); s.now.Before(end); s.now = s.now.Add(100 * time.Millisecond) {
		isDown := s.now.Sub(s.start)%(down+up) < down
		for _, action := range at(Tick{}) {
			switch a := action.(type) {
			case Probe:
				probes++
				result := Probed{Engagement: a.Engagement, Generation: a.Generation, UID: "u"}
				if isDown {
					failed++
					result.UID, result.Failure = "", &Failure{backends.ReasonTimeout, "timeout"}
				}
				at(result)
			default:
				t.Fatalf("after %v: %s", s.now.Sub(s.start), describeAction(action))
			}
		}
		if state := s.machine.Status().State; state != backends.Engaged && state != backends.Degraded {
			t.Fatalf("after %v: %s", s.now.Sub(s.start), state)
		}
	}
	if probes < 30 || failed == 0 {
		t.Errorf("%d probes, %d of them failed: the schedule tested nothing", probes, failed)
	}
}
