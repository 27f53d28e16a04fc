// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
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

// Spent is the use of a slice's GPU time, and how that is known: "" where it is not. What is metered may have been looked at too; the
// ledger is its job's to wipe.
func Spent(smPercent int, used ledger.DeviceUsage, sampled timeline.Sample) (Time, Source) {
	spent, source := TimeOf(used), Metered
	spent.GPUSeconds = max(spent.GPUSeconds, float64(sampled.MeteredMs)/1e3)
	spent.WaitedSeconds = max(spent.WaitedSeconds, float64(sampled.WaitedMs)/1e3)
	if sampled.SampledMs != nil {
		spent.GPUSeconds = math.Round(spent.GPUSeconds*1e3+float64(*sampled.SampledMs)) / 1e3
		source = Sampled
	} else if smPercent%100 == 0 && spent.GPUSeconds == 0 { // nothing is metered without a share to keep
		source = ""
	}
	return spent, source
}

// Source says how the device's GPU time is known. Records of earlier releases do not say it.
func (d Device) Source() Source {
	if d.GPUTimeSource == "" && (d.SMPercent%100 != 0 || d.GPUSeconds > 0) {
		return Metered
	}
	return d.GPUTimeSource
}

// Complete puts into a record's devices what their timeline knows, and what was metered since somebody looked last.
func (r *Record) Complete(history timeline.History, used []ledger.DeviceUsage, idleAfter time.Duration) {
	end := timeline.Look{AtUnixS: r.End.Unix()}
	for i := range r.Devices {
		last, _ := history.Last(i)
		d := &r.Devices[i]
		d.Time, d.GPUTimeSource = Spent(d.SMPercent, used[i], last)
		if idleAfter > 0 && time.Duration(last.LongestIdleS)*time.Second >= idleAfter {
			d.IdleSeconds = last.LongestIdleS
		}
		last.MeteredMs, last.WaitedMs = max(last.MeteredMs, int64(used[i].BusyNs/1e6)), max(last.WaitedMs, int64(used[i].WaitedNs/1e6))
		end.Slices = append(end.Slices, last)
	}
	history = history.End(end)
	for i := range r.Devices {
		r.Devices[i].Timeline = history.Points(i, timeline.MaxRecorded)
	}
}
