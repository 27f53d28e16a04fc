// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"math"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

// series is what the driver says of these percents, one each fifth of a second from 1 s on; less than 0: nothing.
func series(pids []int, percents ...int) (samples []discover.Used) {
	for i, percent := range percents {
		if percent >= 0 {
			samples = append(samples, discover.Used{PID: pids[i%len(pids)], AtUnixUs: 1_000_000 + uint64(i)*200_000, SMPercent: percent})
		}
	}
	return samples
}

func TestSamplesStandForTheTimeSinceTheOneBefore(t *testing.T) {
	for name, c := range map[string]struct {
		samples []discover.Used
		since   uint64
		want    map[int]float64
	}{
		"none":                                {nil, 800_000, map[int]float64{}},
		"idle":                                {series([]int{7}, 0, 0, 0), 800_000, map[int]float64{}},
		"floored percents":                    {series([]int{7}, 49, 49, 0, 99), 800_000, map[int]float64{7: 99 + 99 + 199}},
		"full":                                {series([]int{7}, 100, 100), 800_000, map[int]float64{7: 400}},
		"two by turns":                        {series([]int{7, 8}, 99, 99, 99, 99), 800_000, map[int]float64{7: 398, 8: 398}},
		"begins late":                         {series([]int{7}, 99), 900_000, map[int]float64{7: 99.5}},
		"from when is not known, or long ago": {series([]int{7}, 99), 0, map[int]float64{7: 199}},
		"idle in between":                     {series([]int{7}, 99, 99, -1, -1, -1, -1, 99), 10_000, map[int]float64{7: 3 * 199}},
		"a clock set back":                    {series([]int{7}, 99, 99), 5_000_000, map[int]float64{7: 2 * 199}},
		"two of one time": {[]discover.Used{{PID: 7, AtUnixUs: 1_000_000, SMPercent: 49}, {PID: 8, AtUnixUs: 1_000_000, SMPercent: 0}}, 800_000,
			map[int]float64{7: 99}},
		"six a second": {[]discover.Used{{PID: 7, AtUnixUs: 1_000_000, SMPercent: 99}, {PID: 7, AtUnixUs: 1_166_000, SMPercent: 99}}, 0,
			map[int]float64{7: 332 * 0.995}},
	} {
		got := weigh(c.samples, c.since)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for pid, ms := range c.want {
			if math.Abs(got[pid]-ms) > 0.001 {
				t.Errorf("%s: process %d had %.3f ms, want %.3f", name, pid, got[pid], ms)
			}
		}
	}
}

func TestWhatIsMeteredIsTakenOff(t *testing.T) {
	for name, c := range map[string]struct {
		interval
		want map[uint32]float64
	}{
		"alone":                      {interval{used: map[uint32]float64{1: 5000}, free: []uint32{1}, whole: true}, map[uint32]float64{1: 5000}},
		"idle":                       {interval{free: []uint32{1}, whole: true}, map[uint32]float64{1: 0}},
		"two, without shares":        {interval{used: map[uint32]float64{1: 5000, 2: 1000}, free: []uint32{1, 2}, whole: true}, map[uint32]float64{1: 5000, 2: 1000}},
		"and somebody without slice": {interval{used: map[uint32]float64{1: 5000}, others: 3000, free: []uint32{1}, whole: true}, map[uint32]float64{1: 5000}},
		// 3 s of 8 were metered; how samples were booked says nothing.
		"beside a share":    {interval{used: map[uint32]float64{1: 7000, 2: 1000}, metered: map[uint32]float64{2: 3000}, free: []uint32{1}, whole: true}, map[uint32]float64{1: 5000}},
		"two beside one":    {interval{used: map[uint32]float64{1: 4500, 2: 1000, 3: 1500}, metered: map[uint32]float64{2: 3000}, free: []uint32{1, 3}, whole: true}, map[uint32]float64{1: 3000, 3: 1000}},
		"all is metered":    {interval{used: map[uint32]float64{1: 4000, 2: 4000}, metered: map[uint32]float64{1: 4000, 2: 4001}, free: []uint32{1}, whole: true}, map[uint32]float64{1: 0}},
		"idle beside one":   {interval{used: map[uint32]float64{2: 8000}, metered: map[uint32]float64{2: 3000}, free: []uint32{1}, whole: true}, map[uint32]float64{1: 0}},
		"somebody has gone": {interval{used: map[uint32]float64{1: 7000, 2: 1000}, metered: map[uint32]float64{1: 500, 2: 3000}, free: []uint32{1}}, map[uint32]float64{1: 6500}},
	} {
		got := c.sampled()
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for job, ms := range c.want {
			if math.Abs(got[job].ms-ms) > 0.001 {
				t.Errorf("%s: job %d had %.3f ms, want %.3f", name, job, got[job].ms, ms)
			}
		}
	}
}
