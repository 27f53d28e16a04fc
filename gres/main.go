// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpu-gres finds this node's GPUs, prints the lines that Slurm needs about them, and checks those
// that a site has.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
	exitConfig  = 78
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	command := rootCommand()
	command.SetArgs(args)
	err := command.Execute()
	if err == nil {
		return 0
	}
	if !errors.Is(err, errFindings) {
		fmt.Fprintf(os.Stderr, "vgpu-gres: %v\n", err)
	}
	return exitCode(err)
}

var (
	errFindings = errors.New("there are findings")
	errUsage    = errors.New("")
	errConfig   = errors.New("")
)

func exitCode(err error) int {
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errConfig):
		return exitConfig
	}
	return exitFailure
}

// options are those that every command has.
type options struct {
	configPath string
	node       string
}

func rootCommand() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "vgpu-gres",
		Short: "Find this node's GPUs, and write and check the Slurm lines about them",
		Long: `vgpu-gres finds this node's GPUs over NVML, prints the lines that belong into Slurm's
files, and checks the files that a site has.

Exit codes: 0 fine, 1 findings or a failure, 2 wrong usage, 78 config.yaml is wrong.`,
		Example: `  vgpu-gres inventory --write     # at boot, before slurmd: the GPUs on which vgpu-prolog places jobs
  vgpu-gres gres.conf             # lines for gres.conf
  vgpu-gres slurm.conf            # lines for slurm.conf
  vgpu-gres check                 # is everything there?`,
		Version:       version.Number,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&o.configPath, "config", config.DefaultPath, "configuration `file`")
	root.PersistentFlags().StringVar(&o.node, "node", config.NodeName(), "`name` of this node in Slurm")
	root.Flags().Bool("version", false, "print the version and exit")
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w%w", err, errUsage) })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml") // the flag is there
	root.AddCommand(inventoryCommand(&o), checkCommand(&o), probeCommand())
	root.AddCommand(lineCommands(&o)...)
	root.Args = noCommand
	root.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	return root
}

// noCommand refuses what is no command; cobra would print help for it.
func noCommand(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("there is no command %q; `%s --help` lists them%w", args[0], command.CommandPath(), errUsage)
	}
	return nil
}

func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, got %q%w", command.CommandPath(), args[0], errUsage)
	}
	return nil
}

// held is the configuration by which the prolog goes, for this node.
func (o *options) held() (config.Config, error) {
	held := config.LoadHeld(o.configPath)
	err := held.Err()
	if held.Standing == config.Unknown {
		return held.Config, fmt.Errorf("%w%w", err, errConfig)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "vgpu-gres: %v\n", err)
	} else if err := config.Keep(o.configPath); err != nil && os.Geteuid() == 0 {
		fmt.Fprintf(os.Stderr, "vgpu-gres: %v\n", err)
	}
	return held.Config.ForNode(o.node), nil
}

// load reads the configuration for lines that are to be written elsewhere: no old copy is good enough for these. The second one is for this node; the first still has %n and %h,
// which is how they belong into a file of Slurm's.
func (o *options) load() (asWritten, forNode config.Config, err error) {
	cfg, err := config.Load(o.configPath)
	if err != nil {
		return cfg, cfg, fmt.Errorf("%w%w", err, errConfig)
	}
	return cfg, cfg.ForNode(o.node), nil
}
