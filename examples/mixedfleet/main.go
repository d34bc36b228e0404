package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options are the flags.
type options struct {
	once       bool
	output     string
	kubeconfig string
	context    string
	consumer   string
	verbose    bool
}

func main() {
	ctx, stop := untilToldToEnd(context.Background())
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "mixedfleet",
		Short: "One controller over clusters from three inventories, on real API servers",
		Long: `Mixedfleet starts a hub and four member clusters on this machine, lists the members as ClusterProfiles, as Cluster API
Clusters and as kubeconfig Secrets, and runs one controller over all of them, with a live table and a narrated tour.

With --kubeconfig it starts nothing and shows the fleet of your own hub instead. It changes nothing there, nor in
the clusters: the controller counts ConfigMaps and does not label them, and there is no tour.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "mixedfleet:", err)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.once, "once", false, "end after the tour, with exit code 0 only if every step did what it says")
	flags.StringVarP(&o.output, "output", "o", "text", `"json" prints one JSON document on standard output, with --once`)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "show the fleet of the hub in this kubeconfig, read-only")
	flags.StringVar(&o.context, "context", "", "the kubeconfig's context; by default the current one")
	flags.StringVar(&o.consumer, "consumer", defaultConsumer, "with --kubeconfig: the consumer that ClusterProfiles' Secrets are for (KEP-4322)")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "show the log")
	return cmd
}

func (o options) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("unknown output %q: text or json", o.output)
	case o.output == "json" && !o.once:
		return errors.New("-o json needs --once")
	case o.context != "" && o.kubeconfig == "":
		return errors.New("--context needs --kubeconfig")
	}
	out := stdout
	if o.output == "json" {
		out = stderr // standard output is the document's alone
	}
	s := newScreen(out)
	o.setLogger(s, stderr)
	var err error
	if o.kubeconfig != "" {
		err = observe(ctx, o, s, stdout)
	} else {
		err = demonstrate(ctx, o, s, stdout)
	}
	if ctx.Err() != nil {
		if !o.once && errors.Is(err, context.Canceled) {
			return nil // it was meant to run until now
		}
		if err == nil && o.once {
			return errors.New("interrupted")
		}
	}
	return err
}

// setLogger decides what becomes of controller-runtime's and client-go's logs. By default nobody sees them: the table
// says what matters.
func (o options) setLogger(s *screen, stderr io.Writer) {
	logger := logr.Discard()
	if o.verbose {
		out := stderr
		if s.live() {
			out = s // or it would get into the table
		}
		logger = funcr.New(func(prefix, args string) { fmt.Fprintln(out, prefix, args) }, funcr.Options{LogTimestamp: true})
	}
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}
