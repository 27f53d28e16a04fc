// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

// doctor collects findings about one node.
type doctor struct {
	sitecheck.Report
	config    config.Config
	runDir    string // as the configuration has it, with %n
	node      string
	bootID    string
	inventory *device.Inventory // nil: there is none to rely on
}

const asRoot = "run it as root"

func doctorCommand(o *options) *cobra.Command {
	var asJSON bool
	site := sitecheck.Site{Enroot: sitecheck.EnrootFolder}
	command := &cobra.Command{
		Use:   "doctor [--json]",
		Short: "Check that this node is set up right",
		Long: `Check that this node is set up right: configuration, GPUs, state, library, isolation, Slurm's files and
the reports that wait. One line per check; each fault comes with its remedy. Nothing is changed.
Run it as root: some checks are skipped otherwise, and a warning says so. On a controller or a login node
only what belongs there is looked at.

A warning is a check that could not be made, or a way to a GPU that the site has left open, with the key of
config.yaml that closes it. Exit codes: 0 nothing failed, 1 something did, 2 wrong usage, 78 config.yaml is wrong
and there is no good copy to look by.`,
		Example: "  vgpuctl doctor\n  vgpuctl doctor --json | jq '.[] | select((.ok or .warning) | not)'",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			d := doctor{}
			err := d.examine(command.Context(), o, site)
			if exit, ok := errors.AsType[exitError](err); err != nil && (!ok || exit.err != nil) {
				return err
			}
			if asJSON {
				if err := printJSON(command.OutOrStdout(), d.Findings); err != nil {
					return err
				}
			} else {
				printFindings(command.OutOrStdout(), d.Findings)
			}
			if failed, _ := sitecheck.Count(d.Findings); failed > 0 && err == nil {
				return exitError{code: exitFailure}
			}
			return err
		},
	}
	command.Flags().StringVar(&site.SlurmConf, "slurm-conf", sitecheck.DefaultSlurmConf(), "slurm.conf `file`")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func (d *doctor) examine(ctx context.Context, o *options, site sitecheck.Site) error {
	named := o.node != ""
	held := config.LoadHeld(o.configPath)
	d.Findings = append(d.Findings, sitecheck.ConfigFile(o.configPath, held)...)
	if held.Standing == config.Unknown {
		return exitError{code: exitConfig}
	}
	cfg, err := o.ofNode(held)
	if err != nil {
		return err
	}
	d.config, d.runDir, d.node = cfg, held.Config.RunDir, o.node
	if d.bootID, err = inventory.BootID(); err != nil {
		return err
	}
	site.Node, site.Config, site.Live, site.ConfigDir = d.node, d.config, true, filepath.Dir(o.configPath)
	site.Config.RunDir = d.runDir
	site.IsNode = named || sitecheck.HasGPUs(cfg) || isThere(cfg.Run().Inventory())
	site.Running = sitecheck.AskSlurm(ctx, cfg.Slurm.Scontrol, site.SlurmConf, d.node)
	if site.Computes() {
		d.machine(ctx)
	}
	d.slurm(ctx, site)
	if site.Computes() {
		d.reports(ctx)
	}
	d.accounting(ctx, site.SlurmConf)
	return nil
}

// machine looks at what a compute node has.
func (d *doctor) machine(ctx context.Context) {
	d.gpus()
	d.driver()
	d.deviceNodes()
	d.deviceFiles()
	d.state()
	d.slices(ctx)
	d.audit(ctx)
	d.remains(ctx)
	d.library(ctx)
	d.isolation(ctx)
	d.userNamespaces()
	d.Findings = append(d.Findings, sitecheck.OpenWays(d.config)...)
	d.wall()
	d.vgpud(ctx)
}

func printFindings(out io.Writer, findings []sitecheck.Finding) {
	p := painter(out)
	for _, finding := range findings {
		switch {
		case finding.OK:
			fmt.Fprintf(out, "%s    %s: %s\n", p.good("ok"), finding.Check, finding.Says)
		case finding.Warning:
			fmt.Fprintf(out, "%s  %s: %s -> %s\n", p.bold("warn"), finding.Check, finding.Says, finding.Remedy)
		default:
			fmt.Fprintf(out, "%s  %s: %s -> %s\n", p.bad("fail"), finding.Check, finding.Says, finding.Remedy)
		}
	}
	switch failed, warnings := sitecheck.Count(findings); {
	case failed > 0:
		fmt.Fprintf(out, "%d of %d checks failed, %s\n", failed, len(findings), plural(warnings, "warning"))
	case warnings > 0:
		fmt.Fprintf(out, "none of %d checks failed, %s\n", len(findings), plural(warnings, "warning"))
	default:
		fmt.Fprintf(out, "all %d checks are well\n", len(findings))
	}
}
