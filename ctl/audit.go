// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// auditTime bounds an audit that acts: NVML may hang, and so may the controller.
const auditTime = 2 * time.Minute

// strayUse is one line of `vgpuctl audit --json`.
type strayUse struct {
	audit.Stray
	User string `json:"user"`
	Says string `json:"says"`
}

// auditReport is what `vgpuctl audit --json` prints.
type auditReport struct {
	Node   string     `json:"node"`
	GPUs   int        `json:"gpus"`
	Strays []strayUse `json:"strays"`
	// Problems are why that may not be all.
	Problems []string `json:"problems,omitempty"`
}

const auditText = `Hold what the driver says of every process with memory on this node's GPUs against what the ledgers say,
and show what no ledger accounts for: processes of no job, of a job without a slice of that GPU, that
the job's ledger lacks or counts with less memory, and jobs that hold more than their slice.

The audit looks at each stray again some seconds later, and shows it only if it is still there: a program
that starts, ends or allocates is no stray. Processes of the users in audit_ignore are none either, but
in containers, nor is a job of whole GPUs on its own.

With --act nothing is printed. Strays are logged, and with audit: cancel their jobs are cancelled;
with audit: off nothing is done. vgpud runs it so, every two minutes and after each job.

Exit codes: 0 nothing, or --act; 3 stray use; 1 not everything could be looked at; 2 wrong usage,
78 config.yaml is wrong.`

func auditCommand(o *options) *cobra.Command {
	var asJSON, act bool
	pace := audit.Usual
	command := &cobra.Command{
		Use:     "audit [--apart DURATION] [--act] [--json]",
		Short:   "Look for use of GPUs that no slice accounts for (root only)",
		Long:    auditText,
		Example: "  vgpuctl audit\n  vgpuctl audit --json | jq '.strays[] | {kind, pid, job}'",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if pace.Apart < 0 || pace.Apart > time.Minute {
				return exitError{exitUsage, fmt.Errorf("--apart %s: from 0s to 1m", pace.Apart)}
			}
			cfg, err := o.held()
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return errors.New("audit: only root may see other users' processes")
			}
			if act {
				return actOnStrays(command.Context(), cfg, o.node, pace)
			}
			return showStrays(command.Context(), cfg, o.node, pace, command.OutOrStdout(), asJSON)
		},
	}
	command.Flags().DurationVar(&pace.Apart, "apart", pace.Apart, "look again after this `duration`")
	command.Flags().BoolVar(&act, "act", false, "do what the configuration says instead of printing")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// findStrays looks at all GPUs of this node.
func findStrays(ctx context.Context, cfg config.Config, pace audit.Pace) (auditReport, error) {
	var report auditReport
	boot, err := inventory.BootID()
	if err != nil {
		return report, err
	}
	inv, err := inventory.Read(cfg.Run().Inventory())
	if err != nil {
		return report, err
	}
	driver, err := audit.OpenDriver(cfg)
	if err != nil {
		return report, err
	}
	defer driver.Close()
	store := state.Of(cfg, boot, hclog.NewNullLogger())
	watcher := audit.Watcher{Auditor: audit.Here(cfg.Run()), Pace: pace, GPUs: inventory.Leave(inv, cfg.SlurmGPUs).GPUs,
		Ignore: audit.Users(cfg.AuditIgnore, userID), Ask: driver.Holders,
		Held: func() ([]state.Slice, error) { current, err := store.Read(); return current.Slices, err }, Told: toldBy(cfg, driver)}
	found, err := watcher.Find(ctx)
	report = auditReport{GPUs: len(inv.GPUs), Strays: []strayUse{}, Problems: found.Problems}
	for _, s := range found.Strays {
		report.Strays = append(report.Strays, strayUse{s, userName(s.UID), s.Says()})
	}
	return report, err
}

func userID(name string) (string, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return found.Uid, nil
}

func showStrays(ctx context.Context, cfg config.Config, node string, pace audit.Pace, out io.Writer, asJSON bool) error {
	report, err := findStrays(ctx, cfg, pace)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	report.Node = node
	if asJSON {
		err = printJSON(out, report)
	} else {
		printStrays(out, report)
	}
	switch {
	case err != nil:
		return err
	case len(report.Strays) > 0:
		return exitError{code: exitStray}
	case len(report.Problems) > 0:
		return exitError{code: exitFailure}
	}
	return nil
}

func printStrays(out io.Writer, report auditReport) {
	p := painter(out)
	for _, problem := range report.Problems {
		fmt.Fprintln(out, p.bad("not everything is known: "+problem))
	}
	if len(report.Strays) == 0 {
		fmt.Fprintf(out, "%s: no stray use of %s\n", p.bold(report.Node), plural(report.GPUs, "GPU"))
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GPU\tPID\tCOMMAND\tUSER\tJOB\tMEM MiB\tWHAT")
	for _, s := range report.Strays {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Index, dash(s.PID), orDash(s.Name), s.User, dash(s.Job), known(s.MiB), s.Says)
	}
	table.Flush()
}

// dash prints a number that is not 0.
func dash[T int | uint32](n T) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func orDash(text string) string {
	if strings.TrimSpace(text) == "" {
		return "-"
	}
	return text
}

// actOnStrays is what vgpud runs.
func actOnStrays(ctx context.Context, cfg config.Config, node string, pace audit.Pace) error {
	if cfg.Audit == config.AuditOff {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	log, closer := logOf(cfg, "audit")
	defer closer.Close()
	if err := trusted.WriteFile(cfg.Run().Audited(), nil, 0o644); err != nil { // for doctor alone
		return fmt.Errorf("audit: %w", err)
	}
	report, err := findStrays(ctx, cfg, pace)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for _, problem := range report.Problems {
		log.Warn("stray use of GPUs may not be seen", "reason", problem)
	}
	logStrays(log, report.Strays)
	if err := measure(ctx, cfg); err != nil {
		log.Warn("the driver's figures of jobs are not kept for their records", "reason", err)
	}
	if cfg.Audit == config.AuditCancel {
		cancelJobs(ctx, cfg, node, report.Strays, log)
	}
	return nil
}

// mostLogged bounds the lines of one audit: how many processes there are is their users' to say.
const mostLogged = 100

func logStrays(log hclog.Logger, strays []strayUse) {
	for i, s := range strays {
		if i == mostLogged {
			log.Warn("there is more stray use of GPUs than is logged", "strays", len(strays))
			return
		}
		facts := []any{"kind", s.Kind, "device", s.Device, "nvml_index", s.Index, "user", s.User, "job", s.Job, "pid", s.PID, "command", s.Name,
			"accounted_mib", s.AccountedMiB}
		if s.MiB != nil {
			facts = append(facts, "held_mib", *s.MiB)
		}
		log.Warn("stray use of a GPU", facts...)
	}
}

// cancelJobs cancels each job once, and goes on where one cannot be.
func cancelJobs(ctx context.Context, cfg config.Config, node string, strays []strayUse, log hclog.Logger) {
	controller := slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Scancel: cfg.Slurm.Scancel, Timeout: time.Minute}
	asked := make(map[uint32]bool)
	for _, s := range strays {
		if !s.Ends() || asked[s.Job] {
			continue
		}
		asked[s.Job] = true
		done, err := controller.Cancel(ctx, s.Job, node, fmt.Sprintf("vgpu: this job is cancelled: on GPU %d of %s %s", s.Index, node, s.reason()))
		switch {
		case err != nil:
			log.Error("a job with stray use of a GPU is not cancelled", "job", s.Job, "reason", err)
		case done:
			log.Warn("a job with stray use of a GPU is cancelled", "job", s.Job)
		default:
			log.Warn("a job with stray use of a GPU does not run any more", "job", s.Job)
		}
	}
}

// reason is for the job's user.
func (s strayUse) reason() string {
	if s.PID == 0 {
		return "it " + s.Says
	}
	return fmt.Sprintf("its process %d %s", s.PID, s.Says)
}
