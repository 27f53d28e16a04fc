// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"time"
)

// Cell is a span of time, and what the slice did in it.
type Cell struct {
	From, To time.Time
	Known    bool    // false: no point tells of it
	UsedMiB  int64   // at most
	Busy     float64 // part of the time in which it kept the GPU busy: 0.5 is half of it
}

// Intervals are the points with the times between them; start is when the slice was granted. Points that do not
// go on in time (a clock that was set) are put into the next one.
func Intervals(points []Point, start time.Time) []Cell {
	cells := make([]Cell, 0, len(points))
	last := start
	var used, busyMs int64
	for _, p := range points {
		used = max(used, p.UsedMiB)
		busyMs += max(p.BusyMs, 0)
		at := time.Unix(p.AtUnixS, 0)
		length := at.Sub(last)
		if length <= 0 {
			continue
		}
		cells = append(cells, Cell{From: last, To: at, Known: true, UsedMiB: used, Busy: part(busyMs, length)})
		last, used, busyMs = at, 0, 0
	}
	return cells
}

// part is at most 1: times of points are known to the second.
func part(ms int64, of time.Duration) float64 {
	return min(1, float64(ms)/float64(of.Milliseconds()))
}

// Spread cuts the time from one moment to another into n cells of the same length and tells of each what the intervals,
// which are in order, say of it.
func Spread(intervals []Cell, from, to time.Time, n int) []Cell {
	if n <= 0 || !to.After(from) {
		return nil
	}
	cells := make([]Cell, n)
	length := to.Sub(from)
	for i := range cells {
		cell := Cell{From: from.Add(length * time.Duration(i) / time.Duration(n)), To: from.Add(length * time.Duration(i+1) / time.Duration(n))}
		first, _ := slices.BinarySearchFunc(intervals, cell.From, func(in Cell, at time.Time) int {
			if in.To.After(at) {
				return 1
			}
			return -1
		})
		var covered time.Duration
		for _, in := range intervals[first:] {
			if !in.From.Before(cell.To) {
				break
			}
			both := earlier(in.To, cell.To).Sub(later(in.From, cell.From))
			covered += both
			cell.UsedMiB = max(cell.UsedMiB, in.UsedMiB)
			cell.Busy += in.Busy * float64(both)
		}
		if covered > 0 {
			cell.Known = true
			cell.Busy /= float64(covered)
		}
		cells[i] = cell
	}
	return cells
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
