// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Resize says why a slice cannot become another size where it stands, or nil. others is every other
// slice of the node. A size that does not grow always fits, and a GPU that gets no new slices keeps those
// that it has. overcommit lets memory be granted that others were granted already, but no more than
// the GPU has; a share of its time cannot be promised twice.
func Resize(inv device.Inventory, others []device.Slice, was, will device.Slice, rules Rules, overcommit bool) *Refusal {
	want := Want{Slices: 1, Mem: request.Mem{MiB: will.MemMiB}, SMPercent: will.SMPercent, Priority: will.Priority}
	for _, l := range weigh(inv, others, want, rules) {
		if l.gpu.UUID != was.Device {
			continue
		}
		if why := l.hinders(was, will, rules, overcommit); why != "" {
			return &Refusal{Kind: Fragmented, Reason: fmt.Sprintf("GPU %d %s", l.gpu.Index, why)}
		}
		return nil
	}
	return &Refusal{Kind: Unavailable, Reason: fmt.Sprintf("the inventory has no GPU %s", was.Device)}
}

// hinders is the obstacle in words, to be read after the GPU's name.
func (l load) hinders(was, will device.Slice, rules Rules, overcommit bool) string {
	grows := will.SMPercent > 0 && (was.SMPercent == 0 || will.SMPercent > was.SMPercent)
	switch {
	case will.MemMiB > was.MemMiB && will.MemMiB > l.gpu.MemMiB:
		return fmt.Sprintf("has %d MiB in all", l.gpu.MemMiB)
	case will.MemMiB > was.MemMiB && will.MemMiB > l.freeMiB && !overcommit:
		return fmt.Sprintf("has %d MiB for this slice", max(l.freeMiB, 0))
	case will.SMPercent == 100 && grows && l.slices > 0:
		return fmt.Sprintf("holds %s more, and 100 %% is a GPU to itself", plural(l.slices, "slice"))
	case grows && will.SMPercent+l.sm > 100:
		return fmt.Sprintf("has %d %% of its time for this slice", max(100-l.sm, 0))
	case will.Priority == device.PriorityLatency && was.Priority != device.PriorityLatency && l.latencyRoom(rules) < 1:
		return l.fullOfLatency()
	}
	return ""
}
