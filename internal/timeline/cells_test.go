// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math"
	"testing"
	"time"
)

func TestIntervalsGoOnInTime(t *testing.T) {
	start := time.Unix(1000, 0)
	got := Intervals([]Point{
		{AtUnixS: 1010, UsedMiB: 5, BusyMs: 5000},
		{AtUnixS: 1010, UsedMiB: 9, BusyMs: 1000}, // the same second
		{AtUnixS: 900, BusyMs: 1000},              // the clock was set back
		{AtUnixS: 1020, UsedMiB: 2, BusyMs: 500},
	}, start)
	want := []Cell{
		{From: start, To: time.Unix(1010, 0), Known: true, UsedMiB: 5, Busy: 0.5},
		{From: time.Unix(1010, 0), To: time.Unix(1020, 0), Known: true, UsedMiB: 9, Busy: 0.25},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("interval %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestSpreadKeepsTheSumAndThePeak(t *testing.T) {
	start := time.Unix(0, 0)
	var points []Point
	var busyMs, peak int64
	for i := int64(1); i <= 37; i++ {
		p := Point{AtUnixS: i * 7, UsedMiB: i * i % 101, BusyMs: i * 100}
		points, busyMs, peak = append(points, p), busyMs+p.BusyMs, max(peak, p.UsedMiB)
	}
	end := time.Unix(37*7, 0)
	for _, n := range []int{1, 5, 60, 500} {
		var sum float64
		var most int64
		for _, cell := range Spread(Intervals(points, start), start, end, n) {
			if !cell.Known {
				t.Errorf("%d cells: nothing is known of %v", n, cell.From)
			}
			sum += cell.Busy * cell.To.Sub(cell.From).Seconds() * 1000
			most = max(most, cell.UsedMiB)
		}
		if math.Abs(sum-float64(busyMs)) > 1 || most != peak {
			t.Errorf("%d cells: %.1f ms and %d MiB, want %d and %d", n, sum, most, busyMs, peak)
		}
	}
	if cells := Spread(Intervals(points, start), start, end.Add(time.Hour), 10); cells[9].Known {
		t.Error("something is known of the time after the last point")
	}
	if cells := Spread(nil, end, start, 10); cells != nil {
		t.Errorf("time that runs backwards has %d cells", len(cells))
	}
}
