// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package jobreport writes for a job's user how the job used its slices, and what to ask for the next time. It reads
// nothing: the caller finds out the job's use and hands it over as a Report.
package jobreport

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Report is one job, as `vgpuctl report --json` prints it.
type Report struct {
	Job   uint32 `json:"job"`
	JobID string `json:"job_id"`          // as it was asked for: 123, 123_4, 123+1
	User  string `json:"user,omitempty"`  // empty: who has the slices is not told
	Array string `json:"array,omitempty"` // which task is told about, where the array's number was asked for
	Runs  []Run  `json:"runs"`            // the oldest first
}

// Run is one run of the job, on all nodes that are known here.
type Run struct {
	State     string            `json:"state"`               // RUNNING, or Slurm's word for how it ended
	ExitCode  string            `json:"exit_code,omitempty"` // Slurm's CODE:SIGNAL
	Account   string            `json:"account,omitempty"`
	LimitS    int64             `json:"time_limit_s,omitempty"` // 0: none, or not known
	Submitted time.Time         `json:"submitted,omitzero"`
	Start     time.Time         `json:"start,omitzero"`
	End       time.Time         `json:"end,omitzero"` // zero: it runs
	Policy    string            `json:"policy,omitempty"`
	Slices    []Slice           `json:"slices"`
	Refusals  map[string]string `json:"refusals,omitempty"` // by node: why it got no slice there
	Missing   string            `json:"missing,omitempty"`  // what is not known here, and where it is
	Summary   string            `json:"summary,omitempty"`
	Notes     []Note            `json:"notes"`
	// OwnersWord says that what is told comes from a field that the job's owner may have written.
	OwnersWord bool `json:"owners_word,omitempty"`
}

// OwnersWord is said of a report that may be made up.
const OwnersWord = "the job's field Extra, which its owner may have written himself"

// Slice is what was granted on one GPU, and what became of it.
type Slice struct {
	Node      string          `json:"node"`
	Device    device.UUID     `json:"device"`
	MemMiB    int64           `json:"mem_mib"`
	SMPercent int             `json:"sm_percent"` // 0: no cap
	Priority  device.Priority `json:"priority,omitempty"`
	Whole     bool            `json:"whole,omitempty"`
	UsedMiB   *int64          `json:"used_mib,omitempty"` // now
	usage.Figures
	PeakAt           time.Time        `json:"peak_at,omitzero"`
	SharePercent     *float64         `json:"share_percent"`      // of the GPU's time, since the run began; null: not known
	MostSharePercent *float64         `json:"most_share_percent"` // in one interval of the time line; null: there is none
	Timeline         []timeline.Point `json:"timeline,omitempty"`
	Earlier          []device.Limit   `json:"earlier,omitempty"` // limits that it had before mem_mib and sm_percent, the oldest first

	cells []timeline.Cell
}

// Note is something to know or to do.
type Note struct {
	Rule string `json:"rule"` // its name, for programs
	Text string `json:"text"`
}

// Complete works out what follows from what was filled in: shares, peaks and notes. now is the end of what still runs.
func (r *Report) Complete(now time.Time, loc *time.Location) {
	for i := range r.Runs {
		run := &r.Runs[i]
		for j := range run.Slices {
			run.Slices[j].complete(run.Start, run.Wall(now))
		}
		run.Summary = run.summary(now)
		run.Notes = notes(*run, now, loc)
	}
}

// Wall is for how long the run had its slices.
func (r Run) Wall(now time.Time) time.Duration {
	if r.Start.IsZero() {
		return 0
	}
	return max(0, r.end(now).Sub(r.Start))
}

func (r Run) end(now time.Time) time.Time {
	if r.Running() {
		return now
	}
	return r.End
}

// Running says that it has not ended.
func (r Run) Running() bool { return r.End.IsZero() }

// Queued says that it has not begun.
func (r Run) Queued() bool { return r.Start.IsZero() && r.End.IsZero() }

// Compare puts runs in order: by when they were submitted, or began where that is not known, and what waits goes last.
func (r Run) Compare(other Run) int {
	switch {
	case r.Queued() != other.Queued() && r.Queued():
		return 1
	case r.Queued() != other.Queued():
		return -1
	case !r.Start.IsZero() && !other.Start.IsZero():
		return r.Start.Compare(other.Start)
	}
	return r.Submitted.Compare(other.Submitted)
}

// Capped says that the slice has a share to keep.
func (s Slice) Capped() bool { return s.SMPercent > 0 && s.SMPercent < 100 }

func (s *Slice) complete(start time.Time, wall time.Duration) {
	if wall <= 0 {
		return
	}
	if s.GPUSeconds != nil {
		share := 100 * min(1, *s.GPUSeconds/wall.Seconds())
		s.SharePercent = &share
	}
	s.cells = timeline.Intervals(s.Timeline, start)
	if len(s.cells) == 0 {
		return
	}
	var most float64
	var highest int64
	for _, cell := range s.cells {
		most = max(most, 100*cell.Busy)
		if cell.UsedMiB > highest {
			highest, s.PeakAt = cell.UsedMiB, cell.To
		}
	}
	s.MostSharePercent = &most
}
