// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"math"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
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
		got := bySamples(c.samples, c.since)
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

// A driver that tells one entry of each process tells its mean; one that tells each sample may have had one sample of each.
func TestMeansStandForTheWholeTime(t *testing.T) {
	const since, at = 1_000_000, 11_000_000
	entry := func(pid, percent int, at uint64) discover.Used {
		return discover.Used{PID: pid, SMPercent: percent, AtUnixUs: at}
	}
	for name, c := range map[string]struct {
		samples []discover.Used
		busyMs  int // -1: not told
		want    map[int]float64
		until   uint64
	}{
		"nobody":               {nil, 0, map[int]float64{}, at},
		"full":                 {[]discover.Used{entry(7, 100, at-50_000)}, 9950, map[int]float64{7: 9950}, at - 50_000},
		"no word of the whole": {[]discover.Used{entry(7, 29, at-50_000)}, -1, map[int]float64{7: 0.295 * 9950}, at - 50_000},
		"idle at the end":      {[]discover.Used{entry(7, 29, at-5_000_000)}, 2950, map[int]float64{7: 2950}, at},
		"two, and one idle":    {[]discover.Used{entry(7, 79, at), entry(8, 20, at-300_000), entry(9, 0, at-400_000)}, 10_000, map[int]float64{7: 7950, 8: 2050}, at},
		"more than there was":  {[]discover.Used{entry(7, 50, at), entry(8, 50, at)}, 10_000, map[int]float64{7: 5000, 8: 5000}, at},
		"somebody has ended":   {[]discover.Used{entry(7, 19, at)}, 9000, map[int]float64{7: 1950}, at},
		"one sample of each":   {[]discover.Used{entry(7, 100, at-200_000), entry(8, 99, at)}, 399, map[int]float64{7: 200, 8: 199}, at},
		"one sample":           {[]discover.Used{entry(7, 100, at-3_000_000)}, 200, map[int]float64{7: 200}, at},
		"every sample":         {[]discover.Used{entry(7, 100, at-200_000), entry(7, 49, at)}, 9000, map[int]float64{7: 299}, at},
	} {
		said := audit.Utilization{Used: c.samples, At: time.UnixMicro(at)}
		if c.busyMs >= 0 {
			part := float64(c.busyMs) * 1000 / float64(c.until-since)
			said.Busy = &part
		}
		got, until := weigh(said, since, true)
		if len(got) != len(c.want) || until != c.until {
			t.Errorf("%s: %v until %d, want %v until %d", name, got, until, c.want, c.until)
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
