// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmdb"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

func recordsCommand(o *options) *cobra.Command {
	var flush, asJSON bool
	var write bool
	var backfillAfter time.Duration
	command := &cobra.Command{
		Use:   "records [--flush]",
		Short: "Show the usage records that wait to be accounted; --flush writes them",
		Long: `Show the usage records of ended jobs that wait to be written into Slurm's accounting database.

vgpu-epilog starts "vgpuctl records --flush" after every job with vgpu; it goes on until nothing waits, or
until a record is older than report.retry_for. vgpud starts it each hour where records wait. Only one works at a time, so it may be started by hand
as well. Records that were written are in history/ of spool_dir.`,
		Example: "  vgpuctl records\n  vgpuctl records --flush\n  sacct -j 123 -o JobID,ReqTRES,AllocTRES,AdminComment",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, err := o.held()
			if err != nil {
				return err
			}
			switch {
			case write:
				return writeComments(command.Context(), cfg, command.InOrStdin(), command.OutOrStdout())
			case flush:
				return flushSpool(command.Context(), cfg, o, backfillAfter)
			}
			return showBacklog(command.OutOrStdout(), cfg, asJSON)
		},
	}
	command.Flags().BoolVar(&flush, "flush", false, "write them, and try again until they are written")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	// A part of a flush, in a process of its own: Slurm's library ends it when it likes.
	command.Flags().BoolVar(&write, "write", false, "change texts of jobs as standard input says")
	command.Flags().DurationVar(&backfillAfter, "backfill-after", report.DefaultBackfillAfter, "how long after its report a row that slurmctld may have written over is looked at")
	for _, name := range []string{"write", "backfill-after"} {
		if err := command.Flags().MarkHidden(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return command
}

func flushSpool(ctx context.Context, cfg config.Config, o *options, backfillAfter time.Duration) error {
	if err := report.Enabled(cfg); err != nil {
		return err
	}
	log, closer := logOf(cfg, "records")
	defer closer.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	controller := slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: cfg.Slurm.ControllerTimeout}
	reporter := report.Reporter{
		Spool: cfg.Spool(),
		Accounting: report.Slurm{
			Commands: cfg.Slurm,
			Extra:    slurmdb.HasExtra(),
			Writer:   []string{self, "records", "--write", "--config", o.configPath, "--node", o.node},
		},
		Field:         cfg.AccountingField,
		After:         afterOthers(),
		RetryFor:      cfg.Report.RetryFor,
		Log:           log,
		Retry:         report.DefaultRetry,
		Settle:        report.DefaultSettle,
		Spread:        report.DefaultSpread,
		Known:         controller.Knows,
		BackfillAfter: backfillAfter,
	}
	return reporter.Flush(ctx)
}

// writeComments carries out the orders that come on in, and answers each.
func writeComments(ctx context.Context, cfg config.Config, in io.Reader, out io.Writer) error {
	library, err := slurmdb.Library(ctx, cfg.Slurm.Sacctmgr)
	if errors.Is(err, slurmdb.ErrNoLibrary) {
		return exitError{report.ExitNoWriter, err}
	}
	if err != nil {
		return err
	}
	db, err := slurmdb.Open(library)
	if err != nil {
		return err
	}
	defer db.Close()
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var order report.Order
		if err := orders.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		row := slurmdb.Row{JobID: order.JobID, Cluster: order.Cluster, State: order.State, Submit: order.Submit, End: order.End}
		var reply report.Reply
		var changed *slurmdb.ChangedError
		if err := db.SetText(row, string(order.Field), order.Was, order.Text); errors.As(err, &changed) {
			reply.Changed = &changed.Is
		} else if err != nil {
			reply.Error = err.Error()
		}
		if err := replies.Encode(reply); err != nil { // written at once: the library may end this process
			return fmt.Errorf("answer an order: %w", err)
		}
	}
}

// backlogEntry is a record as `vgpuctl records --json` prints it.
type backlogEntry struct {
	usage.Record
	AgeSeconds int64 `json:"age_seconds"`
}

func showBacklog(out io.Writer, cfg config.Config, asJSON bool) error {
	records, bad, err := usage.List(cfg.Spool())
	if err != nil {
		return err
	}
	if asJSON {
		entries := []backlogEntry{}
		for _, rec := range records {
			entries = append(entries, backlogEntry{rec, int64(time.Since(rec.End) / time.Second)})
		}
		return printJSON(out, entries)
	}
	fmt.Fprintf(out, "%s in %s\n", plural(len(records), "waiting record"), cfg.Spool().Usage())
	if len(records) > 0 {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "JOB\tRUN\tNODE\tUSER\tSLICES\tGPU S\tWAITING\tREFUSED BECAUSE")
		for _, rec := range records {
			var used usage.Time
			for _, d := range rec.Devices {
				used = used.Plus(d.Time)
			}
			fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%d\t%s\t%s\t%s\n", rec.Job, rec.Restart, rec.Node, userName(rec.UID), len(rec.Devices), seconds(used.GPUSeconds), age(time.Since(rec.End)), slurm.Printable(rec.Refusal))
		}
		table.Flush()
	}
	for _, name := range bad {
		fmt.Fprintf(out, "%s is no usage record; --flush moves it to %s\n", name, cfg.Spool().History())
	}
	return nil
}
