// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

type size struct {
	mem int64
	sm  int
}

var resizes = []struct {
	name       string
	device     device.UUID
	was, will  size
	alone      bool // no other slice is on the node
	overcommit bool
	twice      bool // memory may be granted twice
	drain      bool
	want       string
}{
	{name: "the same", was: size{3000, 30}, will: size{3000, 30}},
	{name: "smaller", was: size{3000, 30}, will: size{1, 1}},
	{name: "all that is free", was: size{3000, 30}, will: size{6000, 60}},
	{name: "a MiB more", was: size{3000, 30}, will: size{6001, 60}, want: "GPU 3 has 6000 MiB for this slice"},
	{name: "forced", was: size{3000, 30}, will: size{10000, 60}, overcommit: true},
	{name: "more than there is", was: size{3000, 30}, will: size{10001, 30}, overcommit: true, want: "GPU 3 has 10000 MiB in all"},
	{name: "the node grants twice", was: size{3000, 30}, will: size{10000, 60}, twice: true},
	{name: "a percent more", was: size{3000, 30}, will: size{3000, 61}, want: "GPU 3 has 60 % of its time for this slice"},
	{name: "time is not forced", was: size{3000, 30}, will: size{3000, 61}, overcommit: true, want: "GPU 3 has 60 % of its time for this slice"},
	{name: "no cap any more", was: size{3000, 30}, will: size{3000, 0}},
	{name: "capped now", was: size{3000, 0}, will: size{3000, 60}},
	{name: "capped too high", was: size{3000, 0}, will: size{3000, 61}, want: "GPU 3 has 60 % of its time for this slice"},
	{name: "all of it", was: size{3000, 30}, will: size{3000, 100}, want: "GPU 3 holds 1 slice more, and 100 % is a GPU to itself"},
	{name: "all of it, alone", was: size{3000, 30}, will: size{10000, 100}, alone: true},
	{name: "no longer alone", was: size{10000, 100}, will: size{3000, 30}, alone: true},
	{name: "draining", was: size{3000, 30}, will: size{6000, 60}, drain: true},
	{name: "too much was granted before", was: size{9000, 90}, will: size{8000, 80}},
	{name: "no more time than was granted too much", was: size{3000, 70}, will: size{2000, 70}},
	{name: "no more memory than was granted too much", was: size{7000, 10}, will: size{7000, 20}},
	{name: "no more memory than was granted beyond the GPU", was: size{12000, 10}, will: size{12000, 20}},
	{name: "unknown GPU", device: "GPU-c", was: size{3000, 30}, will: size{2000, 30}, want: "the inventory has no GPU GPU-c"},
}

func TestResize(t *testing.T) {
	inv := device.Inventory{GPUs: []device.GPU{{UUID: "GPU-a", Index: 3, MemMiB: 10000}, {UUID: "GPU-b", Index: 4, MemMiB: 10000}}}
	others := []device.Slice{{Device: "GPU-a", MemMiB: 4000, SMPercent: 40}, {Device: "GPU-b", MemMiB: 9000, SMPercent: 90}}
	for _, tc := range resizes {
		t.Run(tc.name, func(t *testing.T) {
			gpu := device.UUID("GPU-a")
			if tc.device != "" {
				gpu = tc.device
			}
			rules := Rules{SlicesPerGPU: 1}
			if tc.twice {
				rules.MemOvercommit = 2
			}
			if tc.drain {
				rules.Drain = []device.UUID{"GPU-a"}
			}
			held := others
			if tc.alone {
				held = nil
			}
			got := Resize(inv, held, device.Slice{Device: gpu, MemMiB: tc.was.mem, SMPercent: tc.was.sm},
				device.Slice{Device: gpu, MemMiB: tc.will.mem, SMPercent: tc.will.sm}, rules, tc.overcommit)
			switch {
			case got == nil && tc.want != "", got != nil && got.Reason != tc.want:
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}

func TestAnotherPriorityForASlice(t *testing.T) {
	inv := node(10000)
	was := held(0, 3000, 30)
	for name, tc := range map[string]struct {
		others    []device.Slice
		was, will device.Slice
		want      string
	}{
		"the first of latency":  {nil, was, of(device.PriorityLatency, was), ""},
		"the second":            {[]device.Slice{of(device.PriorityLatency, was)}, was, of(device.PriorityLatency, was), "GPU 0 holds 1 slice of --vgpu-priority=latency, the most that this node allows"},
		"it was of latency":     {[]device.Slice{of(device.PriorityLatency, was)}, of(device.PriorityLatency, was), of(device.PriorityLatency, was), ""},
		"batch beside latency":  {[]device.Slice{of(device.PriorityLatency, was)}, was, of(device.PriorityBatch, was), ""},
		"latency beside others": {[]device.Slice{was, of(device.PriorityBatch, was)}, was, of(device.PriorityLatency, was), ""},
	} {
		refusal := Resize(inv, tc.others, tc.was, tc.will, Rules{LatencyPerGPU: 1}, true)
		if (refusal == nil) != (tc.want == "") || refusal != nil && refusal.Reason != tc.want {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}
