// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmdb"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// explanation is what `vgpuctl explain --json` prints: one job, from its request to its usage.
type explanation struct {
	Job         uint32               `json:"job"`
	Restart     int                  `json:"restart"`
	Node        string               `json:"node,omitempty"`
	Source      string               `json:"source"` // granted, ended, accounting, waiting
	User        string               `json:"user,omitempty"`
	Since       time.Time            `json:"since,omitzero"`
	Until       time.Time            `json:"until,omitzero"`
	Request     *string              `json:"request,omitempty"` // canonical form
	Entitlement *request.Entitlement `json:"entitlement,omitempty"`
	Refusal     string               `json:"refusal,omitempty"`
	Policy      request.Policy       `json:"policy,omitempty"` // "": not known
	Isolation   string               `json:"isolation,omitempty"`
	FailOpen    bool                 `json:"fail_open,omitempty"`
	Whole       bool                 `json:"whole,omitempty"` // the slices are whole GPUs, or there are none and GPUs are masked
	Slices      []explainedSlice     `json:"slices"`
	Steps       []usage.Step         `json:"steps,omitempty"`
	Report      string               `json:"report,omitempty"` // what became of the usage record
	Comment     *report.Comment      `json:"accounting,omitempty"`
	Array       string               `json:"array,omitempty"`       // which task it is, where the array's number was asked for
	OwnersWord  bool                 `json:"owners_word,omitempty"` // from Extra, which the job's owner may have written
	Waits       string               `json:"waits,omitempty"`       // for what room, node by node
	State       string               `json:"state,omitempty"`       // Slurm's, where only the database knows the job
	Earlier     []explanation        `json:"earlier,omitempty"`     // runs of this job on this node before it was requeued
}

// explainedSlice is a grant, its limit and its usage; what is not known is null.
type explainedSlice struct {
	Node      string `json:"node"`
	Device    string `json:"device"`
	MemMiB    int64  `json:"mem_mib"`
	SMPercent int    `json:"sm_percent"`
	UsedMiB   *int64 `json:"used_mib,omitempty"`
	usage.Figures
	Priority      device.Priority `json:"priority,omitempty"`
	WithoutEffect string          `json:"priority_without_effect,omitempty"` // why its priority does nothing now
	Earlier       []device.Limit  `json:"earlier,omitempty"`                 // limits that it had before this one
	IdleSeconds   int64           `json:"idle_seconds,omitempty"`            // the longest time without GPU time, where the site calls that idle
	// Timeline is what an ended job used over time.
	Timeline []timeline.Point `json:"timeline,omitempty"`
}

// Sources of an explanation.
const (
	sourceGranted    = "granted"
	sourceEnded      = "ended"
	sourceAccounting = "accounting"
	sourceWaiting    = "waiting"
)

var jobIDs = pattern.Late(`^[0-9]{1,10}([_+][0-9]{1,10})?$`)

func explainCommand(o *options) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "explain JOB",
		Short: "Tell what a job asked for, was entitled to, got, may use and has used",
		Long: `Tell what a job asked for (request), what Slurm allocated to it (entitlement), on which GPU it got
that (grant), what it may use (limit) and what it has used (usage); or why it got nothing, and what
room it waits for.

A job that runs on this node is read from its grant; one that has ended here from the usage records in
spool_dir, as far as they are readable; any other one from the accounting database.

JOB is a job id: 123, 123_4 for a task of an array, 123+1 for a component of a heterogeneous job.
Exit codes: 0 explained, 1 nothing is known of the job, 2 wrong usage, 78 config.yaml is wrong.`,
		Example: "  vgpuctl explain 123\n  vgpuctl explain 123_4 --json",
		Args:    oneJob,
		RunE: func(command *cobra.Command, args []string) error {
			cfg, err := o.held()
			if err != nil {
				return err
			}
			e, err := explain(command.Context(), cfg, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(command.OutOrStdout(), e)
			}
			printExplanation(command.OutOrStdout(), e, time.Now())
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

var (
	errNoVGPU  = errors.New("it asked for no vgpu")
	errUnknown = errors.New("it has no grant and no usage record on this node, and nothing of vgpu in the accounting database: it asked for none, or for whole GPUs, whose use is not counted")
)

// oneJob takes the id of a job, as Slurm prints it.
func oneJob(command *cobra.Command, args []string) error {
	if len(args) != 1 || !jobIDs().MatchString(args[0]) {
		return exitError{exitUsage, fmt.Errorf("%s takes one job id: 123, 123_4 or 123+1", command.CommandPath())}
	}
	return nil
}

func explain(ctx context.Context, cfg config.Config, id string) (explanation, error) {
	database := report.Slurm{Commands: cfg.Slurm, Extra: slurmdb.HasExtra()}
	job, err := database.Number(ctx, id)
	if err != nil {
		return explanation{}, fmt.Errorf("explain job %s: %w", id, err)
	}
	e, err := explainHere(cfg, job)
	if err == nil && e.Source == sourceGranted {
		return e, nil
	}
	at := whereaboutsOf(ctx, cfg, id, job)
	e.Waits = at.waits()
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		if told := at.error("explain", id); errors.Is(err, errNoVGPU) && told != nil {
			err = told
		}
		if err != nil {
			return explanation{}, fmt.Errorf("explain job %s: %w", id, err)
		}
		return e, nil
	}
	e, err = explainElsewhere(ctx, cfg, job, at)
	if told := at.error("explain", id); errors.Is(err, errUnknown) && told != nil {
		err = told
	}
	if err != nil {
		return explanation{}, fmt.Errorf("explain job %s: %w", id, err)
	}
	return e, nil
}

// explainElsewhere is about a job that this node knows nothing of: it waits, or the accounting database has it.
func explainElsewhere(ctx context.Context, cfg config.Config, job uint32, at whereabouts) (explanation, error) {
	rows, array, err := report.Slurm{Commands: cfg.Slurm, Extra: slurmdb.HasExtra()}.Job(ctx, job)
	if at.queued() {
		return explanation{Job: job, Source: sourceWaiting, Waits: at.waits(), Array: array.Text(), Slices: []explainedSlice{}}, nil
	}
	if err != nil {
		if at.error("explain", "") != nil { // what the controller says is enough
			err = errUnknown
		}
		return explanation{}, err
	}
	if len(rows) == 0 {
		if at.known {
			return explanation{}, errUnknown
		}
		return explanation{}, at.noJob()
	}
	row := rows[len(rows)-1]
	comment, field, err := row.Comment(cfg.AccountingField)
	if errors.Is(err, report.ErrNoComment) {
		err = errUnknown
	}
	e := fromComment(row, comment)
	e.OwnersWord, e.Array = field == report.FieldExtra, array.Text()
	return e, err
}

// explainHere is about a job that runs or has run on this node. It is neither: fs.ErrNotExist.
func explainHere(cfg config.Config, job uint32) (explanation, error) {
	dir := cfg.Run()
	g, err := grant.Read(dir.Grant(job))
	if err == nil {
		e := fromGrant(dir, g)
		if runs, err := usage.Find(cfg.Spool(), job); err == nil { // root's to read
			e.Earlier = earlier(runs, e.Restart)
		}
		return e, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return explanation{}, err
	}
	if _, err := os.Lstat(dir.None(job)); err == nil {
		return explanation{}, errNoVGPU
	}
	runs, err := usage.Find(cfg.Spool(), job)
	if err != nil {
		return explanation{}, err
	}
	e := fromRecord(runs[len(runs)-1])
	e.Earlier = earlier(runs, e.Restart)
	return e, nil
}

func fromGrant(dir rundir.Dir, g grant.Grant) explanation {
	e := explanation{
		Job: g.Job, Restart: g.Restart, Node: g.Node, Source: sourceGranted, User: userName(g.UID), Since: g.Since,
		Request: &g.Request, Entitlement: &g.Entitlement, Refusal: slurm.Printable(g.Refusal), Policy: g.Policy, Isolation: g.Isolation, FailOpen: g.FailOpen, Whole: g.Whole,
		Slices: []explainedSlice{},
	}
	used, err := usage.Collect(dir, g)
	refused, _ := grant.Refused(dir, g.BootID) // doctor says what is wrong with it
	for i, s := range g.Slices {
		slice := explainedSlice{Node: g.Node, Device: string(s.Device), MemMiB: s.MemMiB, SMPercent: s.SMPercent, Priority: s.Priority, Earlier: g.Earlier[s.Device]}
		if err == nil && i < len(used.Devices) {
			slice.UsedMiB, slice.Figures = used.Slice(i)
		}
		if s.Priority == device.PriorityLatency {
			slice.WithoutEffect = whyNotFirst(dir, refused, s.Device, g.Policy)
		}
		e.Slices = append(e.Slices, slice)
	}
	for _, step := range used.Steps {
		e.Steps = append(e.Steps, usage.StepOf(step))
	}
	return e
}

func fromRecord(rec usage.Record) explanation {
	e := explanation{
		Job: rec.Job, Restart: rec.Restart, Node: rec.Node, Source: sourceEnded, User: userName(rec.UID), Since: rec.Start, Until: rec.End,
		Request: &rec.Request, Entitlement: &rec.Entitlement, Refusal: slurm.Printable(rec.Refusal), Policy: rec.Policy, Slices: []explainedSlice{}, Steps: rec.Steps,
		Report: slurm.Printable(rec.Outcome),
	}
	if e.Report == "" {
		e.Report = "waits to be written to the accounting database"
	}
	if rec.Requeued {
		e.Report = "the job went back into the queue; " + e.Report
	}
	for _, d := range rec.Devices {
		slice := explainedSlice{Node: rec.Node, Device: string(d.Device), MemMiB: d.MemMiB, SMPercent: d.SMPercent, Priority: d.Priority,
			Figures: d.Figures, IdleSeconds: d.IdleSeconds, Timeline: d.Timeline, Earlier: d.Earlier}
		e.Slices = append(e.Slices, slice)
	}
	return e
}

// earlier are the runs before one.
func earlier(runs []usage.Record, restart int) (before []explanation) {
	for _, rec := range runs {
		if rec.Restart < restart {
			before = append(before, fromRecord(rec))
		}
	}
	return before
}

// fromComment is about a job of any node; the database does not keep what was asked for here.
func fromComment(row report.Row, comment report.Comment) explanation {
	e := explanation{Job: row.Job, Source: sourceAccounting, Since: row.Start, State: row.State, Comment: &comment, Slices: []explainedSlice{}}
	for _, node := range comment.NodeNames() {
		for _, s := range comment.Nodes[node] {
			slice := explainedSlice{Node: node, Device: string(s.GPU), MemMiB: s.MemMiB, SMPercent: s.Cores, Figures: s.Figures, Earlier: s.Earlier}
			e.Slices = append(e.Slices, slice)
		}
		if refusal := comment.Refusals[node]; refusal != "" {
			if e.Refusal != "" {
				e.Refusal += "; "
			}
			e.Refusal += node + ": " + refusal
		}
	}
	return e
}
