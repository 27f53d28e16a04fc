// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

const checkLong = `Hold this site's Slurm files against what slurm-vgpu needs on this node. Every finding is one line
with its remedy; nothing is changed. The files are those of this machine unless they are named.
It is for compute nodes, controllers and login nodes, and looks at what each of them needs. slurmctld is
asked for its settings, unless --slurm-conf names a file. A warning is something that could not be looked
at, or that a site may leave as it is.

With --containers, in a step and as an ordinary user, run one container with each runtime that is
installed, with the node's libraries in it, and say what becomes of CUDA there: limited, closed (there
is none) or OPEN (it has no limits). Nothing else is checked then.

With --in-use, print the lines by which Slurm still uses slurm-vgpu on this machine, and nothing else: while
there are any, jobs fail without its files. The packages ask so before they are removed.

Exit codes: 0 nothing found, or warnings alone, 1 findings (of containers: OPEN, or one that did not run; a line of --in-use), 2 wrong usage,
78 config.yaml is wrong, and there is no good copy to look by.`

func checkCommand(o *options) *cobra.Command {
	site := sitecheck.Site{Enroot: sitecheck.EnrootFolder}
	var asJSON, verbose, containers, inUse bool
	var mariadbd string
	command := &cobra.Command{
		Use:   "check",
		Short: "Hold this site's Slurm files against what slurm-vgpu needs",
		Long:  checkLong,
		Example: `  vgpu-gres check
  srun --gres=vgpu:1 /usr/sbin/vgpu-gres check --containers
  vgpu-gres check --slurm-conf ./slurm.conf --node n1`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if inUse {
				return printInUse(command, o, site)
			}
			held := config.LoadHeld(o.configPath)
			findings := sitecheck.ConfigFile(o.configPath, held)
			if held.Standing == config.Unknown {
				return fmt.Errorf("%w%w", printFindings(command, findings, asJSON, verbose), errConfig)
			}
			cfg := held.Config.ForNode(o.node)
			if containers {
				return checkContainers(command, cfg, asJSON)
			}
			site.IsNode = command.Flags().Changed("node")
			if !command.Flags().Changed("slurm-conf") { // a file that is tried is not what slurmctld runs with
				site.Running = sitecheck.AskSlurm(command.Context(), cfg.Slurm.Scontrol, site.SlurmConf, o.node)
			}
			site.Database = sitecheck.LocalDatabase(command.Context(), mariadbd)
			lookAround(command.Context(), &site, o, held.Config, cfg)
			more, err := site.Check()
			if err != nil {
				return err
			}
			if site.Computes() {
				more = append(more, sitecheck.Vgpud(command.Context(), cfg, site.Inventory)...)
			}
			return printFindings(command, append(findings, more...), asJSON, verbose)
		},
	}
	flags := command.Flags()
	flags.StringVar(&site.SlurmConf, "slurm-conf", sitecheck.DefaultSlurmConf(), "slurm.conf `file`")
	flags.StringVar(&site.GresConf, "gres-conf", "", "gres.conf `file` (default beside slurm.conf)")
	flags.StringVar(&site.PlugstackConf, "plugstack-conf", "", "plugstack.conf `file` (default as slurm.conf says)")
	flags.StringVar(&site.JobSubmit, "job-submit", "", "job_submit.lua `file` (default beside slurm.conf)")
	flags.StringVar(&site.CgroupConf, "cgroup-conf", "", "cgroup.conf `file` (default beside slurm.conf)")
	flags.StringVar(&mariadbd, "mariadbd", sitecheck.MariaDB, "MariaDB server `program` of this machine")
	flags.BoolVar(&containers, "containers", false, "try the runtimes for containers instead")
	flags.BoolVar(&inUse, "in-use", false, "print the lines by which Slurm still uses slurm-vgpu here instead")
	flags.BoolVarP(&verbose, "verbose", "v", false, "print what is right, too")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// printInUse asks with what is right in config.yaml where it is wrong: that is no reason to let a file go that is needed.
func printInUse(command *cobra.Command, o *options, site sitecheck.Site) error {
	cfg := config.LoadHeld(o.configPath).Config.ForNode(o.node)
	site.Node, site.Config, site.IsNode = o.node, cfg, command.Flags().Changed("node") || sitecheck.HasGPUs(cfg)
	if !command.Flags().Changed("slurm-conf") {
		site.Running = sitecheck.AskSlurm(command.Context(), cfg.Slurm.Scontrol, site.SlurmConf, o.node)
	}
	lines := site.InUse()
	for _, line := range lines {
		fmt.Fprintln(command.OutOrStdout(), line)
	}
	if len(lines) > 0 {
		return errFindings
	}
	return nil
}

// lookAround adds what is known of this machine.
func lookAround(ctx context.Context, site *sitecheck.Site, o *options, asWritten, cfg config.Config) {
	site.Node, site.Config, site.ConfigDir = o.node, cfg, filepath.Dir(o.configPath)
	site.Config.RunDir = asWritten.RunDir // as it belongs into plugstack.conf
	site.IsNode = site.IsNode || sitecheck.HasGPUs(cfg)
	site.Version = sitecheck.RunningVersion(ctx, cfg.Slurm.Scontrol, site.SlurmConf)
	inv, err := known(cfg)
	if err == nil {
		site.Inventory = &inv
	} else if site.Computes() {
		fmt.Fprintf(os.Stderr, "vgpu-gres: counts are not checked: %v\n", err)
	}
}

func printFindings(command *cobra.Command, findings []sitecheck.Finding, asJSON, verbose bool) error {
	bad, warnings := sitecheck.Count(findings)
	out := command.OutOrStdout()
	if asJSON {
		if err := printJSON(out, findings); err != nil {
			return err
		}
	} else {
		for _, finding := range findings {
			switch {
			case finding.Warning:
				fmt.Fprintf(out, "%s: warning: %s -> %s\n", finding.Check, finding.Says, finding.Remedy)
			case !finding.OK:
				fmt.Fprintf(out, "%s: %s -> %s\n", finding.Check, finding.Says, finding.Remedy)
			case verbose:
				fmt.Fprintf(out, "%s: ok: %s\n", finding.Check, finding.Says)
			}
		}
		fmt.Fprintf(out, "%s, %s, %s\n", counted(len(findings), "check"), counted(bad, "finding"), counted(warnings, "warning"))
	}
	if bad > 0 {
		return errFindings
	}
	return nil
}

func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
