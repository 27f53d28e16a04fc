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
		next    uint64
	}{
		"nobody":               {nil, 0, map[int]float64{}, since},
		"full":                 {[]discover.Used{entry(7, 100, at-50_000)}, 10_000, map[int]float64{7: 9950}, at - 50_000},
		"no word of the whole": {[]discover.Used{entry(7, 29, at-50_000)}, -1, map[int]float64{7: 0.295 * 9950}, at - 50_000},
		"idle at the end":      {[]discover.Used{entry(7, 29, at-5_000_000)}, 2950, map[int]float64{7: 0.295 * 9900}, at - 5_000_000},
		"two, and one idle":    {[]discover.Used{entry(7, 79, at), entry(8, 20, at-300_000), entry(9, 0, at-400_000)}, 10_000, map[int]float64{7: 7950, 8: 2050}, at},
		"more than there was":  {[]discover.Used{entry(7, 50, at), entry(8, 50, at)}, 10_000, map[int]float64{7: 5000, 8: 5000}, at},
		"somebody has ended":   {[]discover.Used{entry(7, 19, at)}, 9000, map[int]float64{7: 1950}, at},
		"one sample of each":   {[]discover.Used{entry(7, 100, at-200_000), entry(8, 99, at)}, 399, map[int]float64{7: 200, 8: 199}, at},
		"one sample":           {[]discover.Used{entry(7, 100, at-3_000_000)}, 210, map[int]float64{7: 200}, at - 3_000_000},
		"every sample":         {[]discover.Used{entry(7, 100, at-200_000), entry(7, 49, at)}, 9000, map[int]float64{7: 299}, at},
	} {
		said := audit.Utilization{Used: c.samples, At: time.UnixMicro(at)}
		if c.busyMs >= 0 {
			part := float64(c.busyMs) / 10_000
			said.Busy = &part
		}
		got, next := weigh(said, since, true)
		if len(got) != len(c.want) || next != c.next {
			t.Errorf("%s: %v, next since %d, want %v, %d", name, got, next, c.want, c.next)
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

// Whoever looks more often than the driver takes samples counts each sample once, and whole.
func TestLooksInAHurryLoseNothing(t *testing.T) {
	const period = 200_000
	busy := func(sample uint64) uint64 { // percent of the sample that ends at this number times the period
		if sample%10 < 4 {
			return 0
		}
		return 100
	}
	for _, every := range []uint64{50_000, 130_000, 200_000, 330_000, 1_000_000, 3_700_000} {
		since, sum, want := uint64(10*period), 0.0, 0.0
		for now := uint64(10*period + 7000); now < 400*period; now += every {
			newest := (now - 60_000) / period // it is told of a little later
			said := audit.Utilization{At: time.UnixMicro(int64(now))}
			samples, all, last := uint64(0), uint64(0), uint64(0)
			for sample := since/period + 1; sample <= newest; sample++ {
				samples, all = samples+1, all+busy(sample)
				if busy(sample) > 0 {
					last = sample * period
				}
			}
			if all > 0 {
				part := float64(all) / float64(samples) / 100
				said.Used, said.Busy = []discover.Used{{PID: 7, SMPercent: int(all / samples), AtUnixUs: last}}, &part
			}
			var used map[int]float64
			used, since = weigh(said, since, true)
			sum += used[7]
			want = 0
			for sample := uint64(11); sample <= newest; sample++ {
				want += float64(busy(sample)) * period / 1e5
			}
		}
		if math.Abs(sum-want) > want*0.02+period/1e3 {
			t.Errorf("a look each %d us found %.0f ms of %.0f", every, sum, want)
		}
	}
}
