package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tributary-fleet/tributary/backends"
)

// A file that is rewritten is loaded anew; one that is broken or gone changes nothing and is spoken of.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &rung{start: time.Now(), calls: map[string][]time.Duration{}}
		var loads []string
		f := NewFile(FileOptions{
			Path: path, Reason: "Broken", Members: func() []string { return []string{"m"} },
			Load: func(data []byte) error {
				loads = append(loads, string(data))
				if strings.HasPrefix(string(data), "bad") {
					return errors.New("no good")
				}
				return nil
			},
		})
		var wg sync.WaitGroup
		wg.Go(func() { f.run(ctx, nil, r) })
		check := func(what string, wantListed bool, wantReason backends.Reason, wantMessage string, wantLoads ...string) {
			t.Helper()
			time.Sleep(2 * fileInterval)
			synctest.Wait()
			state := f.states()[0]
			if !state.answered || state.listed != wantListed || state.health.Reason != wantReason || !strings.Contains(state.health.Message, wantMessage) {
				t.Errorf("%s: %+v", what, state)
			}
			if diff := cmp.Diff(wantLoads, loads); diff != "" {
				t.Errorf("%s: loads (-want +got):\n%s", what, diff)
			}
			loads = nil
		}
		check("missing", false, "Broken", "nothing could be loaded yet")
		write("bad")
		check("broken", false, "Broken", "no good", "bad")
		write("good")
		check("mended", true, "", "", "good")
		check("left alone", true, "", "")
		write("bad again")
		check("broken again", true, "Broken", "no good; what was loaded before stays in force", "bad again")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check("gone", true, "Broken", "no such file")
		write("good")
		check("back", true, "", "", "good")
		cancel()
		wg.Wait()
		if n := len(r.calls["m"]); n != 2 {
			t.Errorf("members were reconciled %d times, want once for each good content", n)
		}
	})
}
