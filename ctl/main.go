// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpuctl shows users and admins what slurm-vgpu does on a node, and why.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/logging"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
	exitStray   = 3
	exitConfig  = 78
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	command := rootCommand()
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.Execute()
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintf(stderr, "vgpuctl: %s\n", slurm.PrintableLines(exit.Error()))
		}
		return exit.code
	}
	fmt.Fprintf(stderr, "vgpuctl: %s\n", slurm.PrintableLines(err.Error()))
	return exitFailure
}

// exitError is an error with an exit code of its own; without an error inside everything has been
// said already.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return fmt.Sprint(e.err) }
func (e exitError) Unwrap() error { return e.err }

// options are those that every command has.
type options struct {
	configPath string
	node       string
}

func rootCommand() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "vgpuctl",
		Short: "Show the GPU slices of this node: their owners and use, and why a job got none",
		Long: `vgpuctl shows the GPU slices of this node: their owners and use, and why a job got none. Root can
change a running job's limits. Each user may run it for his own jobs; the figures of other users' jobs
are shown as "-".

Exit codes: 0 fine, 1 something is wrong or not found, 2 wrong usage, 3 stray use of a GPU (audit),
78 config.yaml is wrong.`,
		Example: `  vgpuctl status                 # this node's GPUs and slices
  vgpuctl explain 123            # what job 123 asked for, got and used
  vgpuctl report 123 --plot      # what it made of that, and what to ask for the next time
  vgpuctl doctor                 # is this node set up right?`,
		Version:       version.Number,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.PersistentFlags().StringVar(&o.configPath, "config", config.DefaultPath, "configuration `file`")
	root.PersistentFlags().StringVar(&o.node, "node", "", "`name` of this node in Slurm (default: the host's)")
	root.Flags().Bool("version", false, "print the version and exit")
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{exitUsage, err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml") // the flag is there
	root.AddCommand(statusCommand(&o), explainCommand(&o), reportCommand(&o), doctorCommand(&o), recordsCommand(&o), setCommand(&o), sweepCommand(&o),
		auditCommand(&o), sampleCommand(&o), healthCommand(&o), devicesCommand(&o), configCommand(&o), metricsCommand(&o), nodesCommand(&o), wallCommand(&o))
	return root
}

// noCommand refuses what is no command; cobra would print help for it.
func noCommand(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exitError{exitUsage, fmt.Errorf("there is no command %q; `%s --help` lists them", args[0], command.CommandPath())}
	}
	return nil
}

func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exitError{exitUsage, fmt.Errorf("%s takes no arguments, got %q", command.CommandPath(), args[0])}
	}
	return nil
}

// held is the configuration by which the prolog goes, for this node: the last good copy where the file is not believed, which stderr says.
func (o *options) held() (config.Config, error) {
	held, err := o.believed()
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := o.ofNode(held)
	if err != nil {
		return cfg, err
	}
	if err := held.Err(); err != nil {
		fmt.Fprintf(os.Stderr, "vgpuctl: %s\n", slurm.PrintableLines(err.Error()))
	} else if os.Geteuid() == 0 {
		if err := config.Keep(o.configPath); err != nil {
			fmt.Fprintf(os.Stderr, "vgpuctl: %v\n", err)
		}
	}
	return cfg, nil
}

// believed is the same as it was written, %n in it, with what is wrong. Where nothing is known it is an error.
func (o *options) believed() (config.Held, error) {
	held := config.LoadHeld(o.configPath)
	if held.Standing == config.Unknown {
		return held, asConfig(held.Err())
	}
	return held, nil
}

// ofNode is a configuration for this node. Where that has to be chosen, what is wrong with the file is said as well.
func (o *options) ofNode(held config.Held) (_ config.Config, err error) {
	if o.node == "" {
		if o.node, err = thisNode(held.Config); err != nil {
			if wrong := held.Err(); wrong != nil {
				return held.Config, exitError{exitConfig, errors.Join(wrong, err)}
			}
			return held.Config, exitError{exitUsage, err}
		}
	}
	return held.Config.ForNode(o.node), nil
}

// asRoot is how commands begin that change or watch what is others': the configuration, root alone (why not others), and a log of their own, which
// is closed with closer whatever the error is.
func (o *options) asRoot(command, why string) (config.Config, hclog.Logger, io.Closer, error) {
	cfg, err := o.held()
	if err != nil {
		return cfg, nil, io.NopCloser(nil), err
	}
	if os.Geteuid() != 0 {
		return cfg, nil, io.NopCloser(nil), fmt.Errorf("%s: %s", command, why)
	}
	log, closer := logOf(cfg, command)
	return cfg, log, closer, nil
}

// logOf opens the log of a command.
func logOf(cfg config.Config, command string) (hclog.Logger, io.Closer) {
	log, closer, err := logging.New("vgpuctl-"+command, cfg.Log)
	if err != nil {
		log.Error("the log goes to stderr", "reason", err)
	}
	return log, closer
}

// thisNode is the node's name where nobody gave one. A user's shell does not know SLURMD_NODENAME, so
// where slurmd has a name of its own, the folder in run_dir tells it.
func thisNode(cfg config.Config) (string, error) {
	name := config.NodeName()
	before, after, per := strings.Cut(cfg.RunDir, "%n")
	if !per || strings.Contains(after, "%") {
		return name, nil
	}
	if _, err := os.Stat(before + name + after); err == nil {
		return name, nil
	}
	folders, err := filepath.Glob(before + "*" + after)
	if err != nil || len(folders) == 0 {
		return name, nil //nolint:nilerr // the name is no pattern that could be followed
	}
	var names []string
	for _, folder := range folders {
		// Where there is no inventory, no job has been.
		if _, err := os.Stat(rundir.Dir(folder).Inventory()); err != nil {
			continue
		}
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(folder, before), after))
	}
	switch len(names) {
	case 0:
		return name, nil
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("this host has several nodes: choose one with --node=%s", strings.Join(names, " or --node="))
}

func configCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print the configuration as it is in effect on this node",
		Long: `Print the configuration as it is in effect on this node: config.yaml, defaults, %n and %h replaced. Where
config.yaml cannot be used this is the last good copy, standard error says why, and the exit code is 78.`,
		Example: "  vgpuctl config\n  vgpuctl config --config ./config.yaml --node n1",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			held, err := o.believed()
			if err != nil {
				return err
			}
			cfg, err := o.ofNode(held)
			if err != nil {
				return err
			}
			masks := cfg.MasksOthers() // "" stands for one of the two
			if cfg.WithoutSlice = config.WithoutLeave; masks {
				cfg.WithoutSlice = config.WithoutMask
			}
			if _, err := fmt.Fprint(command.OutOrStdout(), cfg.Effective()); err != nil {
				return err
			}
			return asConfig(held.Err())
		},
	}
}

// asConfig gives what is wrong with config.yaml its exit code.
func asConfig(err error) error {
	if err == nil {
		return nil
	}
	return exitError{exitConfig, err}
}
