// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"fmt"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Span is a time with one limit.
type Span struct {
	From, To  time.Time
	MemMiB    int64
	SMPercent int // 0: no cap
}

// Limits are those of the slice from start to end, the first one first. A change at a time outside of that counts for nothing.
func (s Slice) Limits(start, end time.Time) (spans []Span) {
	from := start
	for _, earlier := range s.Earlier {
		if until := time.Unix(earlier.UntilUnixS, 0); until.After(from) && until.Before(end) {
			spans = append(spans, Span{from, until, earlier.MemMiB, earlier.SMPercent})
			from = until
		}
	}
	return append(spans, Span{from, end, s.MemMiB, s.SMPercent})
}

// all are the slice's limits, the one that it was granted first.
func (s Slice) all() []device.Limit {
	return append(s.Earlier[:len(s.Earlier):len(s.Earlier)], device.Limit{MemMiB: s.MemMiB, SMPercent: s.SMPercent})
}

// changed says that the limit was changed while the job ran.
func (s Slice) changed() bool { return len(s.Earlier) > 0 }

// MostMiB is the largest limit that it had.
func (s Slice) MostMiB() (most int64) {
	for _, l := range s.all() {
		most = max(most, l.MemMiB)
	}
	return most
}

// MostPercent is the largest share of time that it had; no cap is 100.
func (s Slice) MostPercent() (most int) {
	for _, l := range s.all() {
		if l.SMPercent == 0 {
			return 100
		}
		most = max(most, l.SMPercent)
	}
	return min(most, 100)
}

// leastPercent is the smallest cap that it had.
func (s Slice) leastPercent() int {
	least := 100
	for _, l := range s.all() {
		if l.SMPercent > 0 {
			least = min(least, l.SMPercent)
		}
	}
	return least
}

// Top is what a picture of the slice must have room for: the largest of its limits and of what it used, of memory and of percent.
func (s Slice) Top() (mib, percent float64) {
	mib, percent = float64(s.MostMiB()), float64(s.MostPercent())
	for _, cell := range s.cells {
		mib, percent = max(mib, float64(cell.UsedMiB)), max(percent, 100*cell.Busy)
	}
	return mib, min(percent, 100)
}

// changedLimits is what root has changed while the job ran.
func changedLimits(f facts) string {
	var words []string
	for _, s := range f.Slices {
		limits := s.all()
		for i := range s.Earlier {
			words = append(words, fmt.Sprintf("%s from %s to %s at %s", s.Device, limitText(limits[i]), limitText(limits[i+1]),
				clock(time.Unix(limits[i].UntilUnixS, 0), f.now, f.loc)))
		}
	}
	if words == nil {
		return ""
	}
	return "an administrator changed the limit: " + strings.Join(words, "; ") + "; bars are held against the largest"
}

func limitText(l device.Limit) string {
	if l.SMPercent == 0 {
		return memory(l.MemMiB) + " and no cap"
	}
	return fmt.Sprintf("%s and %d %%", memory(l.MemMiB), l.SMPercent)
}
