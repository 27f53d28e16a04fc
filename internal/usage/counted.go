// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"io/fs"
	"math"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

// Counts is what vgpud has counted of each slice of a job, no time longer than the job's; zero of a slice that it has not looked at, and of all
// where there is no page that this release understands.
func Counts(dir rundir.Dir, g grant.Grant) ([]ledger.TimeDevice, error) {
	counted := make([]ledger.TimeDevice, len(g.Slices))
	page, err := ledger.ReadTime(dir.Time(g.Job), g.Job)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ledger.ErrLayout) {
		return counted, nil
	}
	wall := uint64(max(g.Bounds().Wall, 0))
	for i := range min(len(page), len(counted)) {
		counted[i] = page[i]
		counted[i].BusyNs, counted[i].UnknownNs = min(page[i].BusyNs, wall), min(page[i].UnknownNs, wall)
	}
	return counted, err
}

// Latest brings what was looked at last of a slice up to date with the pages. They add up: the library counts while it keeps the shares of the
// GPU, and holds nothing back and counts nothing while vgpud does.
func (t Totals) Latest(slice int, last timeline.Sample) timeline.Sample {
	now, used := last, t.Devices[slice]
	now.MeteredMs, now.WaitedMs = max(last.MeteredMs, milliseconds(used.BusyNs)), max(last.WaitedMs, milliseconds(used.WaitedNs))
	if slice >= len(t.Counted) || t.Counted[slice].LookedNs == 0 {
		return now
	}
	counted := t.Counted[slice]
	sum := milliseconds(counted.BusyNs)
	if last.CountedMs != nil {
		sum = max(sum, *last.CountedMs)
	}
	now.CountedMs = &sum
	now.UnknownMs = max(last.UnknownMs, milliseconds(counted.UnknownNs))
	now.Inexact = last.Inexact || counted.Flags&ledger.TimeInexact != 0
	return now
}

func milliseconds(ns uint64) int64 { return int64(math.Round(float64(ns) / 1e6)) }

func seconds(ms int64) float64 { return float64(ms) / 1e3 }
