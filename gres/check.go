// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

func checkCommand(o *options) *cobra.Command {
	site := sitecheck.Site{Enroot: sitecheck.EnrootFolder}
	var asJSON, verbose, containers bool
	var mariadbd string
	command := &cobra.Command{
		Use:   "check",
		Short: "Hold this site's Slurm files against what slurm-vgpu needs",
		Long: `Hold this site's Slurm files against what slurm-vgpu needs on this node. Every finding is one line
with its remedy; nothing is changed. The files are those of this machine unless they are named.

With --containers, in a step and as an ordinary user, run one container with each runtime that is
installed, with the node's libraries in it, and say what becomes of CUDA there: limited, closed (there
is none) or OPEN (it has no limits). Nothing else is checked then.

Exit codes: 0 nothing found, 1 findings (of containers: OPEN, or one that did not run), 2 wrong usage,
78 config.yaml is wrong.`,
		Example: `  vgpu-gres check
  srun --gres=vgpu:1 vgpu-gres check --containers
  vgpu-gres check --slurm-conf ./slurm.conf --node n1`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			asWritten, cfg, err := o.load()
			if err != nil {
				return err
			}
			if containers {
				return checkContainers(command, cfg, asJSON)
			}
			site.Node, site.Config = o.node, cfg
			site.Config.RunDir = asWritten.RunDir // as it belongs into plugstack.conf
			inv, err := known(cfg)
			if err != nil {
				fmt.Fprintf(os.Stderr, "vgpu-gres: counts are not checked: %v\n", err)
			} else {
				site.Inventory = &inv
			}
			site.Version = sitecheck.RunningVersion(command.Context(), cfg.Slurm.Scontrol, site.SlurmConf)
			site.Database = sitecheck.LocalDatabase(command.Context(), mariadbd)
			findings, err := site.Check()
			if err != nil {
				return err
			}
			return printFindings(command, findings, asJSON, verbose)
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
	flags.BoolVarP(&verbose, "verbose", "v", false, "print what is right, too")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func printFindings(command *cobra.Command, findings []sitecheck.Finding, asJSON, verbose bool) error {
	bad := 0
	for _, finding := range findings {
		if !finding.OK {
			bad++
		}
	}
	out := command.OutOrStdout()
	if asJSON {
		if err := printJSON(out, findings); err != nil {
			return err
		}
	} else {
		for _, finding := range findings {
			switch {
			case !finding.OK:
				fmt.Fprintf(out, "%s: %s -> %s\n", finding.Check, finding.Says, finding.Remedy)
			case verbose:
				fmt.Fprintf(out, "%s: ok: %s\n", finding.Check, finding.Says)
			}
		}
		fmt.Fprintf(out, "%d checks, %d findings\n", len(findings), bad)
	}
	if bad > 0 {
		return errFindings
	}
	return nil
}
