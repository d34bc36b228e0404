// Command tributary checks fleet files. Named kubectl-tributary, it is kubectl's plugin "kubectl tributary".
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tributary-fleet/tributary/config"
)

// The exit codes.
const (
	exitFindings = 1 // the file is not right
	exitUsage    = 2 // the command was not called as it wants to be
)

// errFindings says that findings were shown.
var errFindings = errors.New("findings")

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs the command and returns its exit code.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	root := &cobra.Command{
		Use:           "tributary",
		Short:         "Check the file that a fleet is configured by",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	root.AddCommand(check(), schema(), version())
	switch err := root.Execute(); {
	case err == nil:
		return 0
	case errors.Is(err, errFindings):
		return exitFindings
	default:
		fmt.Fprintf(errs, "error: %v\nSee 'tributary --help'.\n", err)
		return exitUsage
	}
}

func check() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "check -f FILE",
		Short: "Show everything that is wrong with a fleet file",
		Long: "Show everything that is wrong with a fleet file, without connecting to anything.\n\n" +
			"The exit code is 0 if nothing is wrong, 1 if something is, and 2 if the file cannot be read or the command is misused.",
		Example: "  tributary check -f fleet.yaml\n  cat fleet.yaml | tributary check -f -",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			fleet, err := load(path, c.InOrStdin())
			if found := config.Findings(err); len(found) > 0 {
				name := path
				if name == "-" {
					name = "stdin"
				}
				for _, f := range found {
					fmt.Fprintf(c.OutOrStdout(), "%s: %v\n", name, f)
				}
				return errFindings
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "nothing is wrong; backends: %d\n", len(fleet.Backends))
			return nil
		},
	}
	c.Flags().StringVarP(&path, "filename", "f", "", "the fleet file, or - for the standard input")
	if err := c.MarkFlagRequired("filename"); err != nil {
		panic(err) // the flag is declared one line above
	}
	return c
}

func load(path string, in io.Reader) (*config.Fleet, error) {
	kinds := config.NewRegistry()
	if path != "-" {
		return config.Load(path, kinds)
	}
	data, err := io.ReadAll(io.LimitReader(in, config.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return config.Parse(data, kinds)
}

func schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of fleet files, for editors",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := config.Schema(config.NewRegistry())
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
}

func version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return errors.New("this program was built without its version")
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "tributary %s %s\n", info.Main.Version, info.GoVersion)
			return err
		},
	}
}
