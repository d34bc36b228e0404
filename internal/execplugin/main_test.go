package execplugin

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tributary-fleet/tributary/connection"
)

// modeVariable makes the test's own binary a plugin; its value says which one.
const modeVariable = "TRIBUTARY_TEST_PLUGIN"

// marker stands for a credential that a plugin writes where it should not.
const marker = "marker-of-a-credential"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode != "" {
		plugin(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

// seen is what a plugin finds when it is run.
type seen struct {
	Args  []string
	Env   []string
	Stdin string
	Info  json.RawMessage
}

func plugin(mode string) {
	switch mode {
	case "token": // prints the token given as its argument
		printToken(os.Args[1])
	case "see": // tells what it finds
		in, err := io.ReadAll(os.Stdin)
		s := seen{Args: os.Args[1:], Env: os.Environ(), Stdin: fmt.Sprint(string(in), err), Info: json.RawMessage(os.Getenv("KUBERNETES_EXEC_INFO"))}
		b, _ := json.Marshal(s)
		printToken(fmt.Sprintf("%x", b))
	case "print": // prints its argument
		fmt.Print(os.Args[1])
	case "fail": // writes a credential everywhere and fails
		fmt.Println(marker)
		fmt.Fprintln(os.Stderr, marker)
		os.Exit(3)
	case "chatty": // writes to stdout (or stderr) for ever
		out := os.Stdout
		if os.Args[1] == "stderr" {
			out = os.Stderr
		}
		for {
			if _, err := out.WriteString(strings.Repeat(marker, 1000)); err != nil {
				time.Sleep(time.Minute) // and does not even end when nobody listens
			}
		}
	case "hang": // starts a child, writes its process ID to the file, and sleeps
		startChild("sleep", os.Args[1])
		time.Sleep(12 * time.Second)
	case "orphan": // leaves a child behind that keeps stdout open
		startChild("sleep", os.Args[1])
		printToken("t")
	case "sleep":
		time.Sleep(12 * time.Second)
	}
}

func printToken(token string) {
	var info struct{ APIVersion string }
	if err := json.Unmarshal([]byte(os.Getenv("KUBERNETES_EXEC_INFO")), &info); err != nil {
		os.Exit(1)
	}
	fmt.Printf(`{"apiVersion":%q,"kind":"ExecCredential","status":{"token":%q}}`, info.APIVersion, token)
}

func startChild(mode, pidFile string) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), modeVariable+"="+mode)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if c.Start() != nil || os.WriteFile(pidFile, fmt.Appendf(nil, "%d", c.Process.Pid), 0o600) != nil {
		os.Exit(1)
	}
}

// testPlugin returns this binary as a plugin.
func testPlugin(t *testing.T, mode string, args ...string) connection.Exec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := connection.Exec{
		Command:    self,
		APIVersion: "client.authentication.k8s.io/v1",
		Env: []connection.EnvVar{
			{Name: modeVariable, Value: connection.NewSecret(mode)},
			{Name: "GORACE", Value: connection.NewSecret("atexit_sleep_ms=0")}, // or it lingers for a second under the race detector
		},
	}
	for _, a := range args {
		e.Args = append(e.Args, connection.NewSecret(a))
	}
	return e
}
