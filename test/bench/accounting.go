// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

const (
	recordsReported   = 300
	recordsEachSecond = 50
)

// records measures how fast usage records of real jobs reach the real database. Nobody reports while the jobs run,
// because the spool's lock is held here; the pauses that a reporter makes for the sake of other nodes do not count.
func (b *bench) records(ctx context.Context) error {
	cfg, err := config.Load(b.cluster.ConfigPath())
	if err != nil {
		return err
	}
	node := b.cluster.Nodes[0]
	cfg = cfg.ForNode(node)
	var unlock func()
	if err := await(ctx, "the reporter of earlier jobs to end", func() error {
		if unlock, err = usage.Lock(cfg.Spool()); err != nil || unlock == nil {
			return errors.Join(err, errors.New("it is at work"))
		}
		return nil
	}); err != nil {
		return err
	}
	defer func() { unlock() }()
	job, err := b.endedArray(ctx, recordsReported)
	if err != nil {
		return err
	}
	var waiting []usage.Record
	if err := await(ctx, "the records of all tasks", func() error {
		if waiting, _, err = usage.List(cfg.Spool()); err != nil || len(waiting) < recordsReported {
			return errors.Join(err, fmt.Errorf("%d are there", len(waiting)))
		}
		return nil
	}); err != nil {
		return err
	}
	asking := time.Now()
	if result := b.cluster.Run(ctx, b.cluster.Root(), "sacct -n -X -j "+job+" -o JobID,AdminComment"); result.Code != 0 {
		return errors.New(result.String())
	}
	asked := time.Since(asking)
	reporter := report.Reporter{
		Spool: cfg.Spool(),
		Accounting: report.Slurm{Commands: cfg.Slurm,
			Writer: []string{b.tool("vgpuctl"), "records", "--write", "--config", b.cluster.ConfigPath(), "--node", node}},
		RetryFor: cfg.Report.RetryFor, Log: hclog.NewNullLogger(), Retry: report.DefaultRetry, Settle: report.DefaultSettle,
	}
	if err := os.Setenv("SLURM_CONF", b.cluster.Home.Path("etc", "slurm.conf")); err != nil { // for what the reporter runs
		return err
	}
	unlock()
	unlock = func() {}
	begin := time.Now()
	if err := reporter.Flush(ctx); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := b.accounted(ctx, job, recordsReported); err != nil {
		return err
	}
	rate := float64(len(waiting)) / took.Seconds()
	b.add(row{fmt.Sprintf("%d usage records into the database", len(waiting)), ms(took), "sacct of them " + ms(asked),
		fmt.Sprintf("%.0f a second", rate), fmt.Sprintf("≥ %d a second", recordsEachSecond), rate >= recordsEachSecond})
	return nil
}

// endedArray runs an array of so many tasks with a slice each, and waits until the database says that all have ended.
func (b *bench) endedArray(ctx context.Context, tasks int) (job string, err error) {
	result := b.cluster.Run(ctx, b.cluster.Users[0],
		fmt.Sprintf("sbatch --parsable --array=1-%d --output=/dev/null --gres=%s --wrap true", tasks, gresOfJob))
	if result.Code != 0 {
		return "", errors.New(result.String())
	}
	job = strings.TrimSpace(result.Stdout)
	return job, await(ctx, "the tasks of an array to end", func() error {
		if ended := b.count(ctx, "sacct -n -X -P -j "+job+" -o State,End", "COMPLETED|2"); ended != tasks {
			return fmt.Errorf("%d of %d have ended", ended, tasks)
		}
		return nil
	})
}

// accounted holds the database against what was to be written: a fast reporter that loses records is none.
func (b *bench) accounted(ctx context.Context, job string, want int) error {
	if got := b.count(ctx, "sacct -n -X -P -j "+job+" -o AdminComment", `"vgpu"`); got != want {
		return fmt.Errorf("%d of %d tasks have their usage in the database", got, want)
	}
	return nil
}

// count is how many lines of a command's output have a text.
func (b *bench) count(ctx context.Context, command, text string) int {
	n := 0
	for line := range strings.Lines(b.cluster.Run(ctx, b.cluster.Root(), command).Stdout) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// await asks until something is so, for ten minutes at most.
func await(ctx context.Context, what string, ready func() error) error {
	for end := time.Now().Add(10 * time.Minute); ; {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, errors.Join(err, ctx.Err()))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// number is the first number of a text.
func number(text string) (float64, error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if len(fields) == 0 {
		return 0, fmt.Errorf("no number in %q", text)
	}
	return strconv.ParseFloat(fields[0], 64)
}
