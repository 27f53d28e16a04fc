// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// figures are what some jobs had in the same seconds.
type figures struct {
	seconds  float64
	had      []float64 // percent of the GPU, by counted kernels
	byVgpud  []float64 // percent, by vgpud's pages
	unknown  []float64 // percent of the time that nobody counted, by the same
	flags    []uint32
	slices   []uint32 // of each group, in microseconds, as vgpud set them last
	gpm      float64
	cpu      float64 // vgpud's, percent of a core
	requests []int
	p50MS    []float64
	p99MS    []float64
}

// pages are looked at for changes this long at most: vgpud writes each 100 ms.
const mostBetweenLooks = 300 * time.Millisecond

// look is vgpud's page right after it was written.
func (t *trial) look(j *job) ledger.TimeDevice {
	before := t.counted(j)
	is := before
	t.comes(mostBetweenLooks, func() bool {
		is = t.counted(j)
		return is.LookedNs != before.LookedNs
	})
	return is
}

// measure lets jobs go, lets them settle and counts.
func (t *trial) measure(all ...*job) figures {
	letGo(all...)
	t.pause(settling)
	return t.window(t.seconds, all...)
}

func (t *trial) window(seconds float64, all ...*job) figures {
	g := t.gpu()
	var pages []ledger.TimeDevice
	var done, requests []uint64
	for _, j := range all {
		pages = append(pages, t.look(j))
	}
	sample, cpu, began := g.Sample(), t.vgpudCPU(), time.Now()
	for _, j := range all {
		done, requests = append(done, j.done()), append(requests, j.boards[0].Get(gauge.Requests))
	}
	t.pause(time.Duration(seconds * float64(time.Second)))
	f := figures{seconds: time.Since(began).Seconds()}
	for i, j := range all {
		f.had = append(f.had, 100*float64(j.done()-done[i])*j.kernelMS()/1e3/f.seconds)
		n, p50, p99 := j.boards[0].Latencies(requests[i])
		f.requests, f.p50MS, f.p99MS = append(f.requests, n), append(f.p50MS, p50), append(f.p99MS, p99)
	}
	f.cpu = 100 * (t.vgpudCPU() - cpu).Seconds() / f.seconds
	f.gpm = g.Engine(sample, g.Sample())
	for i, j := range all {
		is := t.look(j)
		percent, unknown := math.NaN(), 0.0
		if between := is.LookedNs - pages[i].LookedNs; is.LookedNs != 0 && pages[i].LookedNs != 0 && between > 0 {
			percent = 100 * float64(is.BusyNs-pages[i].BusyNs) / float64(between)
			unknown = 100 * float64(is.UnknownNs-pages[i].UnknownNs) / float64(between)
		}
		f.unknown = append(f.unknown, unknown)
		f.byVgpud, f.flags = append(f.byVgpud, percent), append(f.flags, is.Flags)
		f.slices = append(f.slices, is.SliceUs)
	}
	return f
}

func sum(all []float64) (total float64) {
	for _, x := range all {
		total += x
	}
	return total
}

func percents(all []float64) string {
	var said []string
	for _, x := range all {
		said = append(said, fmt.Sprintf("%.1f", x))
	}
	return strings.Join(said, " ")
}

// columns are the measurement's part of a line.
func (f figures) columns() []string {
	said := []string{fmt.Sprintf("had %s, in all %.1f", percents(f.had), sum(f.had)), "by vgpud " + percents(f.byVgpud), fmt.Sprintf("slices %v us", f.slices),
		fmt.Sprintf("GPM %.1f", f.gpm), fmt.Sprintf("vgpud %.1f %% of a core", f.cpu)}
	if sum(f.unknown) > 0 {
		said = append(said, "unknown "+percents(f.unknown))
	}
	for i, n := range f.requests {
		if n > 0 {
			said = append(said, fmt.Sprintf("%d requests, p50 %.2f, p99 %.2f ms", n, f.p50MS[i], f.p99MS[i]))
		}
	}
	return said
}

// isNear says that each had its share of what all had, to a point, and how far it was off at most.
func isNear(had, shares []float64, points float64) (near bool, worst float64) {
	total, all := sum(had), sum(shares)
	for i := range had {
		if total == 0 {
			return false, 100
		}
		worst = max(worst, math.Abs(100*had[i]/total-100*shares[i]/all))
	}
	return worst <= points, worst
}
