// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

// doctor collects findings about one node.
type doctor struct {
	config    config.Config
	runDir    string // as the configuration has it, with %n
	node      string
	bootID    string
	inventory *device.Inventory // nil: there is none to rely on
	findings  []sitecheck.Finding
}

func (d *doctor) ok(check, format string, args ...any) {
	d.findings = append(d.findings, sitecheck.Finding{Check: check, OK: true, Says: fmt.Sprintf(format, args...)})
}

func (d *doctor) fail(check, remedy, format string, args ...any) {
	d.findings = append(d.findings, sitecheck.Finding{Check: check, Says: fmt.Sprintf(format, args...), Remedy: remedy})
}

func doctorCommand(o *options) *cobra.Command {
	var asJSON bool
	site := sitecheck.Site{Enroot: sitecheck.EnrootFolder}
	command := &cobra.Command{
		Use:   "doctor [--json]",
		Short: "Check that this node is set up right",
		Long: `Check that this node is set up right: configuration, GPUs, state, library, isolation, Slurm's files and
the reports that wait. One line per check; what is wrong comes with its remedy. Nothing is changed.
Run it as root: some checks are skipped otherwise.

Exit codes: 0 all is well, 1 something is not, 2 wrong usage, 78 config.yaml is wrong.`,
		Example: "  vgpuctl doctor\n  vgpuctl doctor --json | jq '.[] | select(.ok | not)'",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			d := doctor{}
			if err := d.examine(command.Context(), o, site); err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(command.OutOrStdout(), d.findings); err != nil {
					return err
				}
			} else {
				printFindings(command.OutOrStdout(), d.findings)
			}
			for _, finding := range d.findings {
				if !finding.OK {
					return exitError{code: exitFailure}
				}
			}
			return nil
		},
	}
	command.Flags().StringVar(&site.SlurmConf, "slurm-conf", sitecheck.DefaultSlurmConf(), "slurm.conf `file`")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func (d *doctor) examine(ctx context.Context, o *options, site sitecheck.Site) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	asWritten, err := config.Load(o.configPath)
	if err != nil {
		return exitError{exitConfig, err}
	}
	d.config, d.runDir, d.node = cfg, asWritten.RunDir, o.node
	if d.bootID, err = inventory.BootID(); err != nil {
		return err
	}
	if _, err := os.Stat(o.configPath); err != nil {
		d.ok("config", "%s is not there: defaults are in effect", o.configPath)
	} else {
		d.ok("config", "%s is valid", o.configPath)
	}
	d.gpus()
	d.driver()
	d.deviceNodes()
	d.deviceFiles()
	d.state()
	d.turns()
	d.slices(ctx)
	d.audit(ctx)
	d.remains(ctx)
	d.library(ctx)
	d.isolation(ctx)
	d.userNamespaces()
	d.wall()
	d.slurm(ctx, site)
	d.reports(ctx)
	return nil
}

func printFindings(out io.Writer, findings []sitecheck.Finding) {
	p := painter(out)
	bad := 0
	for _, finding := range findings {
		if finding.OK {
			fmt.Fprintf(out, "%s    %s: %s\n", p.good("ok"), finding.Check, finding.Says)
			continue
		}
		bad++
		fmt.Fprintf(out, "%s  %s: %s -> %s\n", p.bad("fail"), finding.Check, finding.Says, finding.Remedy)
	}
	if bad == 0 {
		fmt.Fprintf(out, "all %d checks are well\n", len(findings))
		return
	}
	fmt.Fprintf(out, "%d of %d checks failed\n", bad, len(findings))
}
