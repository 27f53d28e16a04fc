// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

// Figures are what a slice used, as records, AdminComment and what is printed as JSON have it: each of these structs embeds them, so that a
// figure is one row here. Its tag comment is its name in AdminComment, where that is another one. null is not known.
type Figures struct {
	StepFigures
	Time
	Caught // the same of all of a job's slices on a node
}

// StepFigures are what the library counts in the ledger: of a job's slice, and of a step's part of it.
type StepFigures struct {
	PeakMiB  *int64  `json:"peak_mib"`
	Refusals *uint64 `json:"refusals" comment:"refused"` // allocations that the limit refused
}

// Time is the use of a GPU's time, in seconds, as vgpud counts it for a job. Steps have none of their own.
type Time struct {
	GPUSeconds *float64 `json:"gpu_seconds" comment:"gpu_s,omitempty"` // used; null: not known, as vgpud has not looked at the slice
	// UnknownSeconds is how much of the time nobody counted, as vgpud was away. What was used then is not in GPUSeconds.
	UnknownSeconds float64 `json:"unknown_seconds,omitempty" comment:"unknown_s,omitempty"`
	// Inexact says that part of GPUSeconds is a share of what several slices used together.
	Inexact bool `json:"inexact,omitempty"`
}

// FiguresOf are those of a slice, by its job's ledger and by what Counts says.
func FiguresOf(used ledger.DeviceUsage, counted ledger.TimeDevice) Figures {
	return Figures{StepFiguresOf(used), TimeOf(counted), CaughtOf(counted)}
}

// StepFiguresOf are a ledger's.
func StepFiguresOf(used ledger.DeviceUsage) StepFigures {
	return StepFigures{PeakMiB: new(MiB(used.PeakBytes)), Refusals: new(used.Refusals)}
}

// StepOf is what a step used.
func StepOf(totals StepTotals) Step {
	step := Step{Step: totals.Step, Devices: make([]StepFigures, len(totals.Devices))}
	for i, used := range totals.Devices {
		step.Devices[i] = StepFiguresOf(used)
	}
	return step
}

// TimeOf is what Counts says of a slice.
func TimeOf(counted ledger.TimeDevice) Time {
	t := Time{UnknownSeconds: seconds(milliseconds(counted.UnknownNs)), Inexact: counted.Flags&ledger.TimeInexact != 0}
	if counted.LookedNs != 0 {
		t.GPUSeconds = new(seconds(milliseconds(counted.BusyNs)))
	}
	return t
}

// Peak is the most memory in MiB; 0 where it is not known.
func (f StepFigures) Peak() int64 {
	if f.PeakMiB == nil {
		return 0
	}
	return *f.PeakMiB
}

// Refused is how many allocations a limit refused; 0 where it is not known.
func (f StepFigures) Refused() uint64 {
	if f.Refusals == nil {
		return 0
	}
	return *f.Refusals
}

// Used says that GPU time is known to have been used.
func (t Time) Used() bool { return t.GPUSeconds != nil && *t.GPUSeconds > 0 }

// Plus is the time of both. A figure that only one of them has is the figure.
func (t Time) Plus(other Time) Time {
	sum := Time{GPUSeconds: t.GPUSeconds, UnknownSeconds: t.UnknownSeconds + other.UnknownSeconds, Inexact: t.Inexact || other.Inexact}
	if other.GPUSeconds != nil {
		sum.GPUSeconds = other.GPUSeconds
		if t.GPUSeconds != nil {
			sum.GPUSeconds = new(*t.GPUSeconds + *other.GPUSeconds)
		}
	}
	return sum
}

// Since is the time since an earlier look. A figure that one of the two looks lacks is not known.
func (t Time) Since(before Time) Time {
	passed := Time{UnknownSeconds: t.UnknownSeconds - before.UnknownSeconds, Inexact: t.Inexact}
	if t.GPUSeconds != nil && before.GPUSeconds != nil {
		passed.GPUSeconds = new(*t.GPUSeconds - *before.GPUSeconds)
	}
	return passed
}

// Sample is what is known of a slice's time for its timeline.
func Sample(counted ledger.TimeDevice) timeline.Sample {
	s := timeline.Sample{UnknownMs: milliseconds(counted.UnknownNs)}
	if counted.LookedNs != 0 {
		s.BusyMs = new(milliseconds(counted.BusyNs))
	}
	return s
}

// MiB rounds bytes up, so that a use of less than one MiB does not read as none.
func MiB(bytes uint64) int64 {
	mib := int64(bytes >> 20)
	if bytes&(1<<20-1) != 0 {
		mib++
	}
	return mib
}

func milliseconds(ns uint64) int64 { return int64(math.Round(float64(ns) / 1e6)) }

func seconds(ms int64) float64 { return float64(ms) / 1e3 }
