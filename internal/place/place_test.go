// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

const h200 = 143771

// node makes an inventory of GPUs of these sizes; minors run against the NVML order, as they may.
func node(memMiB ...int64) device.Inventory {
	var inv device.Inventory
	for i, mem := range memMiB {
		gpuType := "h200"
		if mem != h200 {
			gpuType = "other"
		}
		inv.GPUs = append(inv.GPUs, device.GPU{
			UUID: uuid(i), Index: device.NVMLIndex(i), Minor: device.Minor(len(memMiB) - 1 - i), Type: gpuType, MemMiB: mem,
		})
	}
	return inv
}

func uuid(i int) device.UUID {
	return device.UUID(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i))
}

func held(gpu int, memMiB int64, sm int) device.Slice {
	return device.Slice{Device: uuid(gpu), MemMiB: memMiB, SMPercent: sm}
}

func of(p device.Priority, s device.Slice) device.Slice {
	s.Priority = p
	return s
}

func mib(n int64) request.Mem { return request.Mem{MiB: n} }

var std = Rules{SlicesPerGPU: 10, MemOvercommit: 1}

func TestPlaceChooses(t *testing.T) {
	two := node(h200, h200)
	for _, c := range []struct {
		what  string
		inv   device.Inventory
		taken []device.Slice
		want  Want
		rules Rules
		gpus  []int
		mem   []int64
	}{
		{what: "empty node", inv: two, want: Want{Slices: 1, Mem: mib(3000)}, gpus: []int{0}, mem: []int64{3000}},
		{what: "pack takes the fullest", inv: two, taken: []device.Slice{held(1, 5000, 0)}, want: Want{Slices: 1, Mem: mib(3000)}, gpus: []int{1}, mem: []int64{3000}},
		{what: "pack takes the fullest that fits", inv: two, taken: []device.Slice{held(1, 141000, 0)}, want: Want{Slices: 1, Mem: mib(3000)}, gpus: []int{0}, mem: []int64{3000}},
		{what: "pack prefers the GPU with less time left", inv: two, taken: []device.Slice{held(0, 3000, 10), held(1, 3000, 20)}, want: Want{Slices: 1, Mem: mib(1), SMPercent: 5}, gpus: []int{1}, mem: []int64{1}},
		{what: "the one that Slurm picked, whatever the rest", inv: two, taken: []device.Slice{held(1, 5000, 0)}, want: Want{Slices: 1, Mem: mib(3000), Only: []device.Minor{1}}, gpus: []int{0}, mem: []int64{3000}},
		{what: "pack takes the smallest empty GPU", inv: node(h200, 40960), want: Want{Slices: 1, Mem: mib(3000)}, gpus: []int{1}, mem: []int64{3000}},
		{what: "spread takes the emptiest", inv: two, taken: []device.Slice{held(0, 5000, 0)}, want: Want{Slices: 1, Mem: mib(3000), Place: request.PlaceSpread}, gpus: []int{1}, mem: []int64{3000}},
		{what: "spread by rule", inv: two, taken: []device.Slice{held(0, 5000, 0)}, want: Want{Slices: 1, Mem: mib(3000)}, rules: Rules{DefaultPlace: request.PlaceSpread}, gpus: []int{1}, mem: []int64{3000}},
		{what: "the want wins over the rule", inv: two, taken: []device.Slice{held(0, 5000, 0)}, want: Want{Slices: 1, Mem: mib(3000), Place: request.PlacePack}, rules: Rules{DefaultPlace: request.PlaceSpread}, gpus: []int{0}, mem: []int64{3000}},
		{what: "two slices, two GPUs, NVML order", inv: two, taken: []device.Slice{held(1, 5000, 0)}, want: Want{Slices: 2, Mem: mib(3000)}, gpus: []int{0, 1}, mem: []int64{3000, 3000}},
		{what: "percent of each GPU", inv: node(h200, 40960), want: Want{Slices: 2, Mem: request.Mem{Percent: 25}, CeilingMiB: 35942}, gpus: []int{0, 1}, mem: []int64{35942, 10240}},
		{what: "percent under a ceiling", inv: two, want: Want{Slices: 1, Mem: request.Mem{Percent: 100}, CeilingMiB: 3000}, gpus: []int{0}, mem: []int64{3000}},
		{what: "exactly full", inv: two, taken: []device.Slice{held(0, 140771, 70)}, want: Want{Slices: 1, Mem: mib(3000), SMPercent: 30}, gpus: []int{0}, mem: []int64{3000}},
		{what: "100 % takes an empty GPU", inv: two, taken: []device.Slice{held(0, 1, 0)}, want: Want{Slices: 1, Mem: mib(3000), SMPercent: 100}, gpus: []int{1}, mem: []int64{3000}},
		{what: "nothing joins 100 %", inv: two, taken: []device.Slice{held(0, 3000, 100)}, want: Want{Slices: 1, Mem: mib(3000)}, gpus: []int{1}, mem: []int64{3000}},
		{what: "draining by the beginning of a UUID", inv: node(h200, h200), want: Want{Slices: 1, Mem: mib(1)}, rules: Rules{Drain: []device.UUID{"GPU-00000000"}}, gpus: []int{1}, mem: []int64{1}},
		{what: "lost and draining GPUs", inv: lose(node(h200, h200, h200), 0, "GPU is lost"), want: Want{Slices: 1, Mem: mib(1)}, rules: Rules{Drain: []device.UUID{uuid(1)}}, gpus: []int{2}, mem: []int64{1}},
		{what: "type filter", inv: node(h200, 40960), want: Want{Slices: 1, Mem: mib(1), GPU: request.Filter{Only: []string{"H200"}}}, gpus: []int{0}, mem: []int64{1}},
		{what: "UUID filter", inv: two, want: Want{Slices: 1, Mem: mib(1), UUID: request.Filter{Not: []string{"GPU-00000000"}}}, gpus: []int{1}, mem: []int64{1}},
		{what: "memory overcommit", inv: node(10000), taken: []device.Slice{held(0, 9000, 0)}, want: Want{Slices: 1, Mem: mib(6000)}, rules: Rules{MemOvercommit: 1.5}, gpus: []int{0}, mem: []int64{6000}},
		{what: "a whole GPU where Slurm put it", inv: node(h200, h200, h200), want: WantOfWhole(request.GPUs{Count: 1, Numbers: []int{1}}), gpus: []int{1}, mem: []int64{h200}},
		{what: "a whole GPU where no slice is", inv: node(h200, h200, h200), taken: []device.Slice{held(1, 1, 0)}, want: WantOfWhole(request.GPUs{Count: 1, Numbers: []int{1}}), gpus: []int{0}, mem: []int64{h200}},
		{what: "whole GPUs of a type, one of them where Slurm put it", inv: node(h200, 40960, h200, h200), taken: []device.Slice{held(0, 1, 0)},
			want: WantOfWhole(request.GPUs{Count: 2, Types: []string{"h200"}, Numbers: []int{0, 3}}), gpus: []int{2, 3}, mem: []int64{h200, h200}},
		{what: "slices on GPUs that are gone", inv: node(10000), taken: []device.Slice{held(7, 9000, 100)}, want: Want{Slices: 1, Mem: mib(10000)}, gpus: []int{0}, mem: []int64{10000}},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, refusal := Place(c.inv, c.taken, c.want, c.rules)
			if refusal != nil {
				t.Fatal(refusal.Reason)
			}
			var want []device.Slice
			for i, gpu := range c.gpus {
				g := c.inv.GPUs[gpu]
				want = append(want, device.Slice{Device: g.UUID, Index: g.Index, Minor: g.Minor, MemMiB: c.mem[i], SMPercent: c.want.SMPercent})
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func lose(inv device.Inventory, gpu int, why string) device.Inventory {
	inv.GPUs[gpu].Lost = why
	return inv
}

// Latency slices go where none is; others where it is fullest, as ever.
func TestPlaceOfPriorities(t *testing.T) {
	taken := []device.Slice{of(device.PriorityLatency, held(0, 5000, 30)), of(device.PriorityBatch, held(1, 3000, 30))}
	for _, c := range []struct {
		priority device.Priority
		rules    Rules
		gpu      int
	}{
		{device.PriorityLatency, Rules{LatencyPerGPU: 1}, 1},
		{device.PriorityLatency, Rules{LatencyPerGPU: 2}, 0},
		{device.PriorityNormal, Rules{LatencyPerGPU: 1}, 0},
		{device.PriorityBatch, Rules{LatencyPerGPU: 1}, 0},
	} {
		placed, refusal := Place(node(h200, h200), taken, Want{Slices: 1, Mem: mib(3000), SMPercent: 30, Priority: c.priority}, c.rules)
		if refusal != nil || placed[0].Device != uuid(c.gpu) || placed[0].Priority != c.priority {
			t.Errorf("%+v: %v, %+v", c, placed, refusal)
		}
	}
}

func TestPlaceRefusesASecondSliceOfLatency(t *testing.T) {
	first := of(device.PriorityLatency, held(0, 1, 10))
	want, rules := Want{Slices: 1, Mem: mib(1), SMPercent: 30, Priority: device.PriorityLatency}, Rules{LatencyPerGPU: 1}
	for other, text := range map[device.Slice]string{
		of(device.PriorityLatency, held(1, 1, 10)): "every GPU holds as many slices of --vgpu-priority=latency as this node allows: 1",
		held(1, h200, 10):                          "no GPU fits 1 MiB and 30 % of its time: GPU 0 holds 1 slice of --vgpu-priority=latency, the most that this node allows, GPU 1 has 0 MiB free",
	} {
		_, refusal := Place(node(h200, h200), []device.Slice{first, other}, want, rules)
		if refusal == nil || refusal.Kind != Fragmented || refusal.Reason != text {
			t.Errorf("got %+v, want %s", refusal, text)
		}
	}
}

func TestPlaceRefuses(t *testing.T) {
	two := node(h200, h200)
	crowd := []device.Slice{held(0, 1, 0), held(0, 1, 0), held(1, 1, 0), held(1, 1, 0)}
	for _, c := range []struct {
		what  string
		inv   device.Inventory
		taken []device.Slice
		want  Want
		rules Rules
		kind  Kind
		text  string
	}{
		{"memory is fragmented", two, []device.Slice{held(0, 100000, 0), held(1, 110000, 0)}, Want{Slices: 1, Mem: mib(50000)}, std,
			Fragmented, "no GPU has 50000 MiB free: the most is 43771 MiB on GPU 0"},
		{"more than any GPU", two, nil, Want{Slices: 1, Mem: mib(200000)}, std,
			Never, "no GPU has 200000 MiB: the most is 143771 MiB on GPU 0"},
		{"overcommit makes no GPU larger", two, nil, Want{Slices: 1, Mem: mib(143772)}, Rules{MemOvercommit: 2},
			Never, "no GPU has 143772 MiB: the most is 143771 MiB on GPU 0"},
		{"percent", two, []device.Slice{held(0, 143000, 0), held(1, 143001, 0)}, Want{Slices: 1, Mem: request.Mem{Percent: 25}}, std,
			Fragmented, "no GPU has 35942 MiB free: the most is 771 MiB on GPU 0"},
		{"time", two, []device.Slice{held(0, 1, 80), held(1, 1, 75)}, Want{Slices: 1, Mem: mib(1), SMPercent: 30}, std,
			Fragmented, "no GPU has 30 % of its time free: the most is 25 % on GPU 1"},
		{"100 % and no empty GPU", two, []device.Slice{held(0, 1, 0), held(1, 1, 0), held(1, 1, 0)}, Want{Slices: 1, Mem: mib(1), SMPercent: 100}, std,
			Fragmented, "no GPU fits 1 MiB and 100 % of its time: GPU 0 holds 1 slice, and 100 % needs an empty one, GPU 1 holds 2 slices, and 100 % needs an empty one"},
		{"all held alone", two, []device.Slice{held(0, 1, 100), held(1, 1, 100)}, Want{Slices: 1, Mem: mib(1)}, std,
			Fragmented, "no GPU fits 1 MiB: GPU 0 is held alone by a slice of 100 %, GPU 1 is held alone by a slice of 100 %"},
		{"slice count", two, crowd, Want{Slices: 1, Mem: mib(1)}, Rules{SlicesPerGPU: 2},
			Fragmented, "every GPU holds as many slices as this node allows: 2"},
		{"different reasons", lose(node(h200, h200, 40960, h200), 0, "GPU is lost"), []device.Slice{held(3, 140000, 0)}, Want{Slices: 1, Mem: mib(50000)}, Rules{Drain: []device.UUID{uuid(1)}},
			Fragmented, "no GPU fits 50000 MiB: GPU 0 is out of service (GPU is lost), GPU 1 is draining, GPU 2 has 40960 MiB in all, GPU 3 has 3771 MiB free"},
		{"two GPUs, one fits", two, []device.Slice{held(1, 100000, 0)}, Want{Slices: 2, Mem: mib(50000), SMPercent: 30}, std,
			Fragmented, "2 different GPUs that fit 50000 MiB and 30 % of its time each are needed, and 1 of 2 would: GPU 1 has 43771 MiB free"},
		{"more slices than GPUs", two, nil, Want{Slices: 3, Mem: mib(1)}, std,
			Never, "3 slices need 3 different GPUs: this node has 2"},
		{"all draining", two, nil, Want{Slices: 1, Mem: mib(1)}, Rules{Drain: []device.UUID{uuid(0), uuid(1)}},
			Unavailable, "no GPU fits 1 MiB: GPU 0 is draining, GPU 1 is draining"},
		{"type", node(h200, 40960), nil, Want{Slices: 1, Mem: mib(1), GPU: request.Filter{Only: []string{"a100"}}}, std,
			Never, "no GPU is admitted by --vgpu-gpu=a100: this node has h200, other"},
		{"UUID", two, nil, Want{Slices: 1, Mem: mib(1), UUID: request.Filter{Only: []string{"GPU-ffffffff"}}}, std,
			Never, "no GPU of this node is admitted by --vgpu-uuid=GPU-ffffffff"},
		{"one type fits and is taken", node(h200, 40960), []device.Slice{held(0, 140000, 0)}, Want{Slices: 1, Mem: request.Mem{Percent: 50}, GPU: request.Filter{Not: []string{"other"}}}, std,
			Fragmented, "no GPU fits 50 % of its memory: GPU 0 has 3771 of 71885 MiB free, GPU 1 is of type other, not admitted by --vgpu-gpu=!other"},
		{"no GPU at all", node(), nil, Want{Slices: 1, Mem: mib(1)}, std, Unavailable, "this node has no GPU"},
		{"no slice", two, nil, Want{Mem: mib(1)}, std, Never, "no slice was asked for"},
		{"no memory", two, nil, Want{Slices: 1}, std, Never, "the job holds no gpumem on this node, so a slice would have no memory"},
		{"too much time", two, nil, Want{Slices: 1, Mem: mib(1), SMPercent: 101}, std, Never, "101 % of a GPU's time was asked for: 100 % is all there is"},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, refusal := Place(c.inv, c.taken, c.want, c.rules)
			if refusal == nil {
				t.Fatalf("placed on %v", got)
			}
			if refusal.Kind != c.kind || refusal.Reason != c.text {
				t.Errorf("got %+v, want %s: %s", refusal, c.kind, c.text)
			}
		})
	}
}

// With that much memory the same want is placed, and with a MiB more it is not.
func TestARefusalNamesTheSizeThatFits(t *testing.T) {
	three := node(h200, h200, 40960)
	for _, c := range []struct {
		what  string
		taken []device.Slice
		want  Want
		rules Rules
		fits  int64
	}{
		{"the largest hole", []device.Slice{held(0, 100000, 0), held(1, 110000, 0), held(2, 40000, 0)}, Want{Slices: 1, Mem: mib(50000)}, std, 43771},
		{"the smaller of two holes", []device.Slice{held(0, 100000, 0), held(1, 110000, 0), held(2, 40000, 0)}, Want{Slices: 2, Mem: mib(50000)}, std, 33771},
		{"where there is time as well", []device.Slice{held(0, 100000, 90), held(1, 110000, 50), held(2, 40000, 0)}, Want{Slices: 1, Mem: mib(50000), SMPercent: 30}, std, 33771},
		{"a share", []device.Slice{held(0, 100000, 0), held(1, 110000, 0), held(2, 40000, 0)}, Want{Slices: 1, Mem: request.Mem{Percent: 50}}, std, 43771},
		{"no more than a GPU has", []device.Slice{held(0, 150000, 0)}, Want{Slices: 1, Mem: mib(200000)}, Rules{MemOvercommit: 2}, h200},
		{"none without time", []device.Slice{held(0, 1, 80), held(1, 1, 80), held(2, 1, 80)}, Want{Slices: 1, Mem: mib(1), SMPercent: 30}, std, 0},
		{"none of drained GPUs", []device.Slice{held(2, 40000, 0)}, Want{Slices: 1, Mem: mib(1000)}, Rules{Drain: []device.UUID{uuid(0), uuid(1), uuid(2)}}, 0},
	} {
		_, refusal := Place(three, c.taken, c.want, c.rules)
		if refusal == nil || refusal.FitsMiB != c.fits {
			t.Errorf("%s: %+v, want %d MiB", c.what, refusal, c.fits)
			continue
		}
		for more, placed := range map[int64]bool{0: true, 1: false} {
			c.want.Mem = mib(c.fits + more)
			if _, again := Place(three, c.taken, c.want, c.rules); c.fits > 0 && (again == nil) != placed {
				t.Errorf("%s, %d MiB more: %+v", c.what, more, again)
			}
		}
	}
}

func TestWantOf(t *testing.T) {
	for _, c := range []struct {
		r    request.Request
		e    request.Entitlement
		want Want
	}{
		{request.Request{}, request.Entitlement{Slices: 2, MemMiB: 6000, SMPercent: 60}, Want{Slices: 2, Mem: mib(3000), CeilingMiB: 3000, SMPercent: 30}},
		{request.Request{Mem: mib(9000), SMPercent: 100}, request.Entitlement{Slices: 1, MemMiB: 3000, SMPercent: 30}, Want{Slices: 1, Mem: mib(9000), CeilingMiB: 3000, SMPercent: 30}},
		{request.Request{Mem: request.Mem{Percent: 25}}, request.Entitlement{MemMiB: 3000}, Want{Slices: 1, Mem: request.Mem{Percent: 25}, CeilingMiB: 3000}},
		{request.Request{Mem: mib(9000)}, request.Entitlement{Slices: 1}, Want{Slices: 1}},
		{request.Request{Priority: request.PriorityLatency}, request.Entitlement{Slices: 1}, Want{Slices: 1, Priority: device.PriorityLatency}},
		{request.Request{Priority: request.PriorityBatch}, request.Entitlement{Slices: 1}, Want{Slices: 1, Priority: device.PriorityBatch}},
		{request.Request{Priority: request.PriorityNormal}, request.Entitlement{Slices: 1}, Want{Slices: 1}},
	} {
		if diff := cmp.Diff(c.want, WantOf(c.r, c.e)); diff != "" {
			t.Error(diff)
		}
	}
	forged, _ := Place(node(h200), nil, WantOf(request.Request{Mem: mib(9000)}, request.Entitlement{Slices: 1, MemMiB: 3000}), std)
	if len(forged) != 1 || forged[0].MemMiB != 3000 {
		t.Errorf("a request above the entitlement was granted %v", forged)
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, count := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("slices=%d", count), func(b *testing.B) {
			inv := node(h200, h200, h200, h200, h200, h200, h200, h200)
			var taken []device.Slice
			for i := range count {
				taken = append(taken, held(i%len(inv.GPUs), 100, 0))
			}
			want := Want{Slices: 2, Mem: mib(3000)}
			b.ReportAllocs()
			for b.Loop() {
				if _, refusal := Place(inv, taken, want, Rules{MemOvercommit: 1}); refusal != nil {
					b.Fatal(refusal.Reason)
				}
			}
		})
	}
}
