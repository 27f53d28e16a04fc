// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

// TimelineRun is whose timeline a grant's is.
func TimelineRun(g grant.Grant) timeline.Run {
	return timeline.Run{Job: g.Job, Restart: g.Restart, Slices: len(g.Slices)}
}

// Newest is what was last looked at of a job's slices; nil: nobody has looked, or who asks may not read it.
func Newest(dir rundir.Dir, g grant.Grant) []timeline.Sample {
	file, err := timeline.Open(dir.Timeline(g.Job), TimelineRun(g), 0)
	if err != nil {
		return nil
	}
	look, _ := file.Last()
	return look.Slices
}

// Spent is the use of a slice's GPU time by its latest sample, and how that is known: "" where it is not. Of a sum the word is that of the part
// that is known the least.
func Spent(smPercent int, now timeline.Sample) (Time, Source) {
	spent := Time{GPUSeconds: seconds(now.BusyMs()), WaitedSeconds: seconds(now.WaitedMs), UnknownSeconds: seconds(now.UnknownMs), Inexact: now.Inexact}
	switch {
	case now.SampledMs != nil && (*now.SampledMs > 0 || now.CountedMs == nil):
		return spent, Sampled
	case now.CountedMs != nil && now.MeteredMs == 0:
		return spent, Counted
	case smPercent%100 == 0 && now.MeteredMs == 0: // nothing is metered without a share to keep
		return spent, ""
	}
	return spent, Metered
}

// Source says how the device's GPU time is known. Records of earlier releases do not say it.
func (d Device) Source() Source {
	if d.GPUTimeSource == "" && (d.SMPercent%100 != 0 || d.GPUSeconds > 0) {
		return Metered
	}
	return d.GPUTimeSource
}

// Complete puts into a record's devices what their timeline knows, and what was used since somebody looked last.
func (r *Record) Complete(history timeline.History, used Totals, idleAfter time.Duration) {
	end := timeline.Look{AtUnixS: r.End.Unix()}
	for i := range r.Devices {
		last, _ := history.Last(i)
		d := &r.Devices[i]
		last = used.Latest(i, last)
		d.Time, d.GPUTimeSource = Spent(d.SMPercent, last)
		if i < len(used.Counted) {
			d.Caught = CaughtOf(used.Counted[i])
		}
		if idleAfter > 0 && time.Duration(last.LongestIdleS)*time.Second >= idleAfter {
			d.IdleSeconds = last.LongestIdleS
		}
		end.Slices = append(end.Slices, last)
	}
	history = history.End(end)
	for i := range r.Devices {
		r.Devices[i].Timeline = history.Points(i, timeline.MaxRecorded)
	}
}
