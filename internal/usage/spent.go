// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

// TimelineRun is whose timeline a grant's is.
func TimelineRun(g grant.Grant) timeline.Run {
	return timeline.Run{Job: g.Job, Restart: g.Restart, Slices: len(g.Slices)}
}

// Complete puts the usage, and the figures of the timeline, into a record's devices.
func (r *Record) Complete(history timeline.History, used Totals, idleAfter time.Duration) {
	end, short := timeline.Look{AtUnixS: r.End.Unix()}, timeline.Look{AtUnixS: r.End.Unix()}
	for i := range r.Devices {
		last, _ := history.Last(i)
		d, now := &r.Devices[i], Sample(used.Counted[i])
		now.UsedMiB = last.UsedMiB
		d.Figures = FiguresOf(used.Devices[i], used.Counted[i])
		if idleAfter > 0 && time.Duration(last.LongestIdleS)*time.Second >= idleAfter {
			d.IdleSeconds = last.LongestIdleS
		}
		end.Slices = append(end.Slices, now)
		if d.PeakMiB != nil {
			now.UsedMiB = *d.PeakMiB
		}
		short.Slices = append(short.Slices, now)
	}
	history = history.End(end).Short(short, r.Start.Unix())
	for i := range r.Devices {
		r.Devices[i].Timeline = history.Points(i, timeline.MaxRecorded)
	}
}
