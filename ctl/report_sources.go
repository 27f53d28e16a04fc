// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/jobreport"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmdb"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// stateRunning is Slurm's word.
const stateRunning = "RUNNING"

// reportOf gathers what who asks may know of a job: the grant and the ledger on its node, the accounting database, and the
// usage records that root can read.
func reportOf(ctx context.Context, cfg config.Config, id string) (jobreport.Report, error) {
	database := report.Slurm{Commands: cfg.Slurm, Extra: slurmdb.HasExtra()}
	job, err := database.Number(ctx, id)
	if err != nil {
		return jobreport.Report{}, err
	}
	found := jobreport.Report{Job: job, JobID: id}
	here, at, err := hereOrAt(ctx, cfg, id, &found)
	if err != nil {
		return found, err
	}
	records, err := usage.Find(cfg.Spool(), job)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return found, err
	}
	for _, rec := range records {
		found.User = userName(rec.UID)
	}
	rows, array, dbErr := database.Job(ctx, job)
	found.Array = array.Text()
	for i, row := range rows {
		run := runOfRow(row, cfg.AccountingField)
		if here != nil && i == len(rows)-1 && (!row.Ended || completes(row, job, *here)) {
			run = withNode(run, *here)
			here = nil
			if row.Nodes > 1 && !row.Ended {
				run.Missing = fmt.Sprintf("it runs on %s; of its other nodes ask there: srun --jobid=%s --overlap -w NODE vgpuctl report %s", row.NodeList, id, id)
			}
		}
		records = slices.DeleteFunc(records, func(rec usage.Record) bool {
			mine := row.IsOf(rec)
			if mine {
				run = withNode(run, runOfRecord(rec))
			}
			return mine
		})
		if told := at.error("report", id); told != nil && i == len(rows)-1 && run.Missing == "" && len(run.Slices)+len(run.Refusals) == 0 {
			run.Missing = told.Error()
		}
		found.Runs = append(found.Runs, missing(run, row, id))
	}
	for _, rec := range records {
		found.Runs = append(found.Runs, runOfRecord(rec))
	}
	if here != nil {
		found.Runs = append(found.Runs, *here)
	}
	slices.SortStableFunc(found.Runs, jobreport.Run.Compare)
	return found, nothing(found, dbErr, at, at.error("report", id))
}

// completes says that a row is of the run that is here, whose processes have not all ended yet.
func completes(row report.Row, job uint32, here jobreport.Run) bool {
	nodes := append(here.Nodes(), "") // none where it has GPUs masked and no slice
	return row.IsOfGrant(job, nodes[0], here.Submitted, here.Start)
}

// hereOrAt is the run of the job on this node, or what the controller says where there is none.
func hereOrAt(ctx context.Context, cfg config.Config, id string, found *jobreport.Report) (here *jobreport.Run, at whereabouts, err error) {
	here, err = runHere(cfg, found.Job, found)
	if here == nil && (err == nil || errors.Is(err, errNoVGPU)) {
		at = whereaboutsOf(ctx, cfg, id, found.Job)
	}
	if told := at.error("report", id); errors.Is(err, errNoVGPU) && told != nil {
		err = told
	}
	return here, at, err
}

// nothing is the error of a report that tells nothing; told is what the controller says of the job.
func nothing(found jobreport.Report, dbErr error, at whereabouts, told error) error {
	why := at.noJob()
	for _, run := range found.Runs {
		switch {
		case len(run.Slices) > 0 || len(run.Refusals) > 0:
			return nil
		case run.Missing != "":
			why = errors.New(run.Missing)
		case run.Start.IsZero() && !run.Running():
			why = errors.New("it was " + strings.ToLower(run.State) + " before it began")
		}
	}
	switch {
	case told != nil:
		why = told
	case dbErr != nil && !errors.Is(dbErr, report.ErrNoRow):
		why = dbErr
	}
	if found.Array != "" {
		return fmt.Errorf("%w; %s", why, found.Array)
	}
	return why
}

// runHere is the run of a job that is on this node now; nil if there is none.
func runHere(cfg config.Config, job uint32, found *jobreport.Report) (*jobreport.Run, error) {
	g, err := grant.Read(cfg.Run().Grant(job))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(cfg.Run().None(job)); err == nil {
			return nil, errNoVGPU
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found.User = userName(g.UID)
	if euid := os.Geteuid(); euid != 0 && uint32(euid) != g.UID {
		return nil, fmt.Errorf("it is %s's and runs: its use is shown to %s and to root; others see the line of sacct when it has ended", found.User, found.User)
	}
	return runOfGrant(cfg.Run(), g)
}

func runOfGrant(dir rundir.Dir, g grant.Grant) (*jobreport.Run, error) {
	run := &jobreport.Run{State: stateRunning, Submitted: g.Submitted, Start: g.Since, Account: slurm.Printable(g.Account), Policy: string(g.Policy), Slices: []jobreport.Slice{}}
	if limit := time.Unix(g.Ends, 0).Sub(g.Since); g.Ends > 0 && limit > 0 { // limits are whole minutes, and a grant comes somewhat after the start
		run.LimitS = int64((limit + time.Minute - 1).Truncate(time.Minute).Seconds())
	}
	if g.Refusal != "" {
		run.Refusals = map[string]string{g.Node: slurm.Printable(g.Refusal)}
		return run, nil
	}
	used, err := usage.Collect(dir, g)
	if err != nil && !g.Whole {
		return nil, err
	}
	history, err := timeline.Read(dir.Timeline(g.Job), usage.TimelineRun(g))
	switch {
	case errors.Is(err, fs.ErrPermission):
		run.Missing = "its use over time is not known here: the timeline cannot be read; an administrator finds why with vgpuctl doctor"
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, timeline.ErrOther):
		return nil, err
	}
	now := timeline.Look{AtUnixS: time.Now().Unix()}
	for i, s := range g.Slices {
		slice := jobreport.Slice{Node: g.Node, Device: s.Device, MemMiB: s.MemMiB, SMPercent: s.SMPercent, Priority: s.Priority, Whole: g.Whole, Earlier: g.Earlier[s.Device]}
		slice.StepFigures = usage.StepFiguresOf(ledger.DeviceUsage{}) // nothing is counted of whole GPUs
		last, _ := history.Last(i)
		if !g.Whole {
			slice.UsedMiB, slice.Figures = used.Slice(i)
			counted := usage.Sample(used.Counted[i])
			counted.UsedMiB = last.UsedMiB
			if slice.UsedMiB != nil {
				counted.UsedMiB = *slice.UsedMiB
			}
			last = counted
		}
		now.Slices = append(now.Slices, last)
		run.Slices = append(run.Slices, slice)
	}
	history = history.End(now)
	for i := range run.Slices {
		run.Slices[i].Timeline = history.Points(i, timeline.MaxRecorded)
	}
	return run, nil
}

func runOfRecord(rec usage.Record) jobreport.Run {
	run := jobreport.Run{State: "ENDED", Submitted: rec.Submitted, Start: rec.Start, End: rec.End, Slices: []jobreport.Slice{}}
	run.Policy = string(rec.Policy)
	if asked, err := request.Decode(rec.Request); err == nil && run.Policy == "" {
		run.Policy = string(asked.Policy)
	}
	if rec.Refusal != "" {
		run.Refusals = map[string]string{rec.Node: slurm.Printable(rec.Refusal)}
	}
	for _, d := range rec.Devices {
		run.Slices = append(run.Slices, jobreport.Slice{Node: rec.Node, Device: d.Device, MemMiB: d.MemMiB, SMPercent: d.SMPercent, Priority: d.Priority,
			Figures: d.Figures, Timeline: d.Timeline, Earlier: d.Earlier})
	}
	return run
}

// runOfRow is what the database tells of a run, on all nodes that have reported.
func runOfRow(row report.Row, accountingField string) jobreport.Run {
	run := jobreport.Run{State: row.State, Account: row.Account, LimitS: int64(row.TimeLimit.Seconds()), Submitted: row.Submit, Start: row.Start, Slices: []jobreport.Slice{}}
	if row.Ended {
		run.End, run.ExitCode = row.End, row.ExitCode
	}
	comment, field, err := row.Comment(accountingField)
	if err != nil {
		return run
	}
	run.Refusals, run.OwnersWord = comment.Refusals, field == report.FieldExtra
	for _, node := range comment.NodeNames() {
		for _, s := range comment.Nodes[node] {
			slice := jobreport.Slice{Node: node, Device: s.GPU, MemMiB: s.MemMiB, SMPercent: s.Cores, Figures: s.Figures, Earlier: s.Earlier}
			if points, err := s.Points(); err == nil { // somebody else's text is no time line
				slice.Timeline = points
			}
			run.Slices = append(run.Slices, slice)
		}
	}
	return run
}

// withNode puts what is known on this node in the place of what the database says of it.
func withNode(run, here jobreport.Run) jobreport.Run {
	for _, s := range here.Slices {
		run.Slices = slices.DeleteFunc(run.Slices, func(old jobreport.Slice) bool { return strings.EqualFold(old.Node, s.Node) })
	}
	run.Slices = append(run.Slices, here.Slices...)
	slices.SortStableFunc(run.Slices, func(a, b jobreport.Slice) int { return strings.Compare(a.Node, b.Node) })
	for node, why := range here.Refusals {
		if run.Refusals == nil {
			run.Refusals = map[string]string{}
		}
		run.Refusals[node] = why
	}
	run.Policy = here.Policy
	if run.Missing == "" {
		run.Missing = here.Missing
	}
	return run
}

// missing says what is not known of a run, and where it is.
func missing(run jobreport.Run, row report.Row, id string) jobreport.Run {
	reported := map[string]bool{}
	for _, s := range run.Slices {
		reported[s.Node] = true
	}
	for node := range run.Refusals {
		reported[node] = true
	}
	switch {
	case run.Missing != "":
	case strings.HasPrefix(row.State, "PENDING"):
		run.Missing = "it waits in the queue"
	case row.Start.IsZero() && row.Ended: // the head says so
	case !row.Ended && len(reported) == 0:
		run.Missing = elsewhere(row.NodeList, "report", id).Error()
	case row.Ended && len(reported) == 0 && time.Since(row.End) < time.Hour:
		run.Missing = "it asked for no vgpu or for whole GPUs, whose use is not counted, or its node has not reported yet, which takes some seconds"
	case row.Ended && len(reported) == 0:
		run.Missing = "the accounting database has nothing of vgpu: it asked for none or for whole GPUs, whose use is not counted, or its node has not reported"
	case row.Ended && len(reported) < row.Nodes:
		run.Missing = fmt.Sprintf("%d of %d nodes did not report (yet)", row.Nodes-len(reported), row.Nodes)
	}
	return run
}
