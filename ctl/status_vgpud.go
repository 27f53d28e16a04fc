// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Keepers of the shares of a GPU's slices.
const (
	keptByLibrary = "library"
	keptByVgpud   = "vgpud"
)

// countedStatus is what vgpud does with a slice.
type countedStatus struct {
	SliceUs  uint32   `json:"slice_us"` // time slice of its groups; 0: as the driver has it
	Percent  *float64 `json:"percent"`  // of the GPU's time, over the half second before the last look; null: that is long ago, or nobody can say
	CreditMs float64  `json:"credit_ms"`
	Frozen   uint32   `json:"frozen"`              // how often its step was frozen
	Killed   uint32   `json:"killed,omitempty"`    // how often one was killed
	Seen     string   `json:"seen,omitempty"`      // what a process of the job was seen to do to get around its share
	IsFrozen bool     `json:"is_frozen,omitempty"` // now
	Unnamed  bool     `json:"unnamed,omitempty"`   // a process that is at work has written down no handles: its time is not counted
	Inexact  bool     `json:"inexact,omitempty"`
	Idle     bool     `json:"idle,omitempty"` // no process of the job had anything to compute with
	// LookedSeconds is how long ago the last look was. Who has no work is not looked at.
	LookedSeconds float64 `json:"looked_seconds"`
}

// freshLook is how old a look may be that still says something of the present. vgpud looks ten times a second at a slice that has work.
const freshLook = 2 * time.Second

// youngFor is until what age of a process vgpud may not have seen it yet: it looks for new ones twice in that time at least.
const youngFor = time.Second

// hasProgram says that a job's process has memory of a slice, by its own word, and had it for long enough to be seen.
func hasProgram(run rundir.Dir, g grant.Grant, slice int, used usage.Totals, now time.Duration) bool {
	if used.Spoiled != nil || used.Devices[slice].UsedBytes == 0 {
		return false
	}
	if c := used.Counted[slice]; c.LookedNs != 0 && c.Flags&ledger.TimeIdle == 0 { // it was seen
		return true
	}
	slots, err := ledger.ReadSlots(run.Ledger(g.Job), g.Job, len(g.Slices))
	if err != nil {
		return true
	}
	slots = slices.DeleteFunc(slots, func(s ledger.Slot) bool { return s.Bytes[slice] == 0 })
	return len(slots) == 0 || slices.ContainsFunc(slots, func(s ledger.Slot) bool {
		began := time.Duration(min(s.StartTicks, 1<<40)) * ledger.Tick
		return began > now || now-began >= youngFor
	})
}

// countedOf is nil for a slice that vgpud has not looked at. Who has memory of the GPU has something to compute with there: where vgpud knows of
// nothing, it does not see a process.
func countedOf(counted ledger.TimeDevice, hasProgram bool, now time.Duration) *countedStatus {
	if counted.LookedNs == 0 {
		return nil
	}
	ago := max(now-time.Duration(counted.LookedNs), 0)
	caught := usage.CaughtOf(counted)
	c := countedStatus{Seen: caught.Seen, Killed: caught.Killed, SliceUs: counted.SliceUs, CreditMs: float64(counted.CreditNs) / 1e6, Frozen: counted.Frozen, LookedSeconds: ago.Seconds(),
		IsFrozen: counted.Flags&ledger.TimeFrozen != 0, Inexact: counted.Flags&ledger.TimeInexact != 0,
		Idle: counted.Flags&ledger.TimeIdle != 0}
	c.Unnamed = counted.Flags&ledger.TimeUnnamed != 0 || c.Idle && hasProgram
	if ago < freshLook && counted.Flags&ledger.TimeUncounted == 0 {
		percent := float64(counted.Percent) / 100
		c.Percent = &percent
	}
	return &c
}

// addKeepers says of each GPU with slices who keeps their shares, and whether vgpud is there where it should be.
func (s *nodeStatus) addKeepers(run rundir.Dir, refused []device.UUID) {
	should := false
	for i := range s.GPUs {
		switch g := &s.GPUs[i]; {
		case g.Slices == 0:
		case slices.Contains(refused, g.UUID):
			g.KeptBy = keptByLibrary
		default:
			g.KeptBy, should = keptByVgpud, true
		}
	}
	if !should {
		return
	}
	if runs, err := trusted.IsLocked(run.VgpudLock()); err == nil { // root's alone to see
		s.VgpudRuns = &runs
	}
}

// needsElastic is about a slice of priority latency whose policy is cap.
const needsElastic = "it needs elastic, which a job asks for with --vgpu-policy=elastic"

// whyNotFirst is why a slice of priority latency on a GPU goes before nobody just now; "": it may.
func whyNotFirst(run rundir.Dir, refused []device.UUID, gpu device.UUID, policy request.Policy) string {
	if policy != request.PolicyElastic {
		return "its policy is cap, and " + needsElastic
	}
	if slices.Contains(refused, gpu) {
		return "the driver refuses vgpud its calls on its GPU; vgpuctl doctor, and vgpud's log, say why"
	}
	if runs, err := trusted.IsLocked(run.VgpudLock()); err == nil && !runs { // root's alone to see
		return "vgpud, which keeps the shares of its GPU, is not there"
	}
	return ""
}

// sharesText is who keeps a GPU's shares, in a table.
func (s *nodeStatus) sharesText(p paint, g gpuStatus) string {
	switch {
	case g.KeptBy == "":
		return "-"
	case g.KeptBy == keptByVgpud && s.VgpudRuns != nil && !*s.VgpudRuns:
		return p.bad("vgpud, not there")
	}
	return g.KeptBy
}

// writeCounted is the table of the slices that vgpud keeps.
func writeCounted(out io.Writer, p paint, status nodeStatus) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tGPU\tPRIORITY\tTIME SLICE\tNOW\tCREDIT\tFROZEN\tNOTE")
	for _, s := range status.Slices {
		if c := s.Counted; c != nil {
			length, credit := "driver's", "-"
			if c.SliceUs > 0 {
				length = fmt.Sprintf("%.2f ms", float64(c.SliceUs)/1e3)
			}
			if s.Priority == device.PriorityLatency {
				credit = fmt.Sprintf("%.0f ms", c.CreditMs)
			}
			fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", s.Job, s.Index, s.Priority, length, percent(c.Percent), credit, c.Frozen, s.note(p))
		}
	}
	table.Flush()
}

func (s sliceStatus) note(p paint) string {
	var words []string
	c := s.Counted
	if c.IsFrozen {
		words = append(words, p.bad("its step is frozen"))
	}
	if c.Killed > 0 {
		words = append(words, p.bad(plural(int(min(c.Killed, 1<<30)), "step")+" killed"))
	}
	if c.Seen != "" {
		words = append(words, "seen: "+c.Seen)
	}
	if c.Unnamed {
		words = append(words, p.bad("a process is not seen: it has no weight and is not counted"))
	}
	if c.Inexact {
		words = append(words, "split, not exact")
	}
	if s.UnknownSeconds >= 0.05 { // as it is written
		words = append(words, fmt.Sprintf("%.1f s not counted", s.UnknownSeconds))
	}
	return strings.Join(words, "; ")
}
