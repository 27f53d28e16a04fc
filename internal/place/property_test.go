// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

func drawNode(t *rapid.T) (device.Inventory, Rules) {
	inv := node(rapid.SliceOfN(rapid.SampledFrom([]int64{h200, 81559, 40960, 100}), 1, 6).Draw(t, "gpus")...)
	rules := Rules{
		SlicesPerGPU:  rapid.IntRange(1, 6).Draw(t, "slices per GPU"),
		MemOvercommit: rapid.SampledFrom([]float64{0, 1, 1.25, 2}).Draw(t, "overcommit"),
		LatencyPerGPU: rapid.SampledFrom([]int{0, 1, 1, 2}).Draw(t, "latency per GPU"),
		DefaultPlace:  rapid.SampledFrom([]request.Place{"", request.PlacePack, request.PlaceSpread}).Draw(t, "default place"),
	}
	for i := range inv.GPUs {
		switch rapid.IntRange(0, 9).Draw(t, "state of GPU") {
		case 0:
			inv.GPUs[i].Lost = "gone"
		case 1:
			rules.Drain = append(rules.Drain, inv.GPUs[i].UUID)
		}
	}
	return inv, rules
}

func drawPriority(t *rapid.T) device.Priority {
	return rapid.SampledFrom([]device.Priority{device.PriorityNormal, device.PriorityNormal, device.PriorityLatency, device.PriorityBatch}).Draw(t, "priority")
}

func drawWant(t *rapid.T) Want {
	want := Want{
		Slices:    rapid.IntRange(1, 4).Draw(t, "slices"),
		SMPercent: rapid.SampledFrom([]int{0, 0, 1, 30, 50, 51, 100}).Draw(t, "sm"),
		Priority:  drawPriority(t),
		Place:     rapid.SampledFrom([]request.Place{"", request.PlacePack, request.PlaceSpread}).Draw(t, "place"),
	}
	if rapid.Bool().Draw(t, "percent") {
		want.Mem.Percent = rapid.Float64Range(0.001, 100).Draw(t, "share")
		want.CeilingMiB = rapid.Int64Range(0, h200).Draw(t, "ceiling")
	} else {
		want.Mem.MiB = rapid.Int64Range(1, h200+1).Draw(t, "mem")
	}
	want.GPU = rapid.SampledFrom([]request.Filter{{}, {}, {Only: []string{"h200"}}, {Not: []string{"h200"}}}).Draw(t, "type")
	want.UUID = rapid.SampledFrom([]request.Filter{{}, {}, {Not: []string{"GPU-00000000"}}, {Only: []string{"GPU-00000001", "GPU-00000002"}}}).Draw(t, "uuid")
	return want
}

// allowed says by the contract alone, one slice on one GPU, whether it may stand there.
func allowed(gpu device.GPU, taken []device.Slice, want Want, rules Rules) bool {
	memMiB, sm, count, latency := int64(0), 0, 0, 0
	for _, s := range taken {
		if s.Device == gpu.UUID {
			memMiB, sm, count = memMiB+s.MemMiB, sm+s.SMPercent, count+1
			if s.Priority == device.PriorityLatency {
				latency++
			}
			if s.SMPercent == 100 || want.SMPercent == 100 {
				return false
			}
		}
	}
	factor := rules.MemOvercommit
	if factor == 0 {
		factor = 1
	}
	ask := want.memOn(gpu.MemMiB)
	return gpu.Lost == "" && !slices.Contains(rules.Drain, gpu.UUID) &&
		want.GPU.Admits(gpu.Type) && want.UUID.AdmitsUUID(string(gpu.UUID)) &&
		(want.Priority != device.PriorityLatency || rules.LatencyPerGPU == 0 || latency < rules.LatencyPerGPU) &&
		count < rules.SlicesPerGPU && sm+want.SMPercent <= 100 &&
		ask <= gpu.MemMiB && float64(memMiB+ask) <= float64(gpu.MemMiB)*factor
}

// Jobs come and go at random. No GPU is ever over-committed, no slice is lost or doubled, a job's
// slices stand on different GPUs, and a job is refused exactly when too few GPUs may hold a slice.
func TestPlaceKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv, rules := drawNode(t)
		var jobs [][]device.Slice
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			if len(jobs) > 0 && rapid.IntRange(0, 3).Draw(t, "event") == 0 {
				gone := rapid.IntRange(0, len(jobs)-1).Draw(t, "job")
				jobs = slices.Delete(jobs, gone, gone+1)
				continue
			}
			taken := slices.Concat(jobs...)
			before := slices.Clone(taken)
			want := drawWant(t)
			fits := 0
			for _, gpu := range inv.GPUs {
				if allowed(gpu, taken, want, rules) {
					fits++
				}
			}
			granted, refusal := Place(inv, taken, want, rules)
			if !slices.Equal(before, taken) {
				t.Fatal("what others hold was changed")
			}
			if again, _ := Place(inv, taken, want, rules); !slices.Equal(granted, again) {
				t.Fatalf("twice the same gave %v and %v", granted, again)
			}
			if (refusal == nil) != (fits >= want.Slices) {
				t.Fatalf("%+v: %d GPUs may hold a slice, refusal is %+v", want, fits, refusal)
			}
			if refusal != nil {
				checkRefusal(t, inv, taken, want, rules, refusal)
				continue
			}
			checkGrant(t, inv, taken, want, rules, granted)
			jobs = append(jobs, granted)
		}
	})
}

func checkGrant(t *rapid.T, inv device.Inventory, taken []device.Slice, want Want, rules Rules, granted []device.Slice) {
	if len(granted) != want.Slices {
		t.Fatalf("%d slices granted of %d", len(granted), want.Slices)
	}
	seen := map[device.UUID]bool{}
	for _, s := range granted {
		gpu, ok := inv.ByUUID(s.Device)
		if !ok || seen[s.Device] {
			t.Fatalf("GPU unknown or used twice: %v", granted)
		}
		seen[s.Device] = true
		if !allowed(gpu, taken, want, rules) {
			t.Fatalf("slice %v does not fit", s)
		}
		if s.MemMiB != want.memOn(gpu.MemMiB) || s.MemMiB <= 0 || s.SMPercent != want.SMPercent || s.Priority != want.Priority || s.Index != gpu.Index || s.Minor != gpu.Minor {
			t.Fatalf("slice %+v is not what %+v asks for on %+v", s, want, gpu)
		}
	}
}

func checkRefusal(t *rapid.T, inv device.Inventory, taken []device.Slice, want Want, rules Rules, refusal *Refusal) {
	if refusal.Reason == "" {
		t.Fatal("refused without a reason")
	}
	_, onEmpty := Place(inv, nil, want, rules)
	if (onEmpty == nil) != (refusal.Kind == Fragmented) {
		t.Fatalf("kind is %s, an empty node says %+v", refusal.Kind, onEmpty)
	}
	if refusal.Kind == Fragmented && len(taken) == 0 {
		t.Fatal("an empty node is not fragmented")
	}
}

// firstFit is what is compared with: the first GPU in NVML order on which the slice may stand.
func firstFit(inv device.Inventory, taken []device.Slice, want Want, rules Rules) ([]device.Slice, *Refusal) {
	for _, gpu := range inv.GPUs {
		if allowed(gpu, taken, want, rules) {
			return []device.Slice{{Device: gpu.UUID, MemMiB: want.memOn(gpu.MemMiB)}}, nil
		}
	}
	return nil, &Refusal{}
}

// What is compared: on 300 random streams of 400 events each (a job comes, or one that runs ends;
// a refused job is dropped), the number of jobs refused for fragmentation, that is, although the
// free memory of all GPUs together would have held them. Single streams may go either way, since
// best fit is no optimum; the sum over the streams must not be above first fit's. The generator's
// seeds are fixed.
func TestPackFragmentsNoMoreThanFirstFit(t *testing.T) {
	inv := node(h200, h200, h200, h200)
	rules := Rules{SlicesPerGPU: 1000, MemOvercommit: 1}
	total := map[string]int{}
	for seed := range uint64(300) {
		for name, place := range map[string]func(device.Inventory, []device.Slice, Want, Rules) ([]device.Slice, *Refusal){"pack": Place, "first fit": firstFit} {
			total[name] += fragmentationRefusals(seed, inv, rules, place)
		}
	}
	t.Logf("jobs refused for fragmentation: pack %d, first fit %d", total["pack"], total["first fit"])
	if total["pack"] > total["first fit"] || total["first fit"] == 0 {
		t.Errorf("pack refused %d, first fit %d", total["pack"], total["first fit"])
	}
}

func fragmentationRefusals(seed uint64, inv device.Inventory, rules Rules, place func(device.Inventory, []device.Slice, Want, Rules) ([]device.Slice, *Refusal)) (refused int) {
	random := rand.New(rand.NewPCG(seed, 2))
	var running []device.Slice
	for range 400 {
		ends, which, size := random.IntN(10) < 4, random.Float64(), random.Int64N(h200/2)+1
		if ends && len(running) > 0 {
			i := int(which * float64(len(running)))
			running = slices.Delete(running, i, i+1)
			continue
		}
		granted, refusal := place(inv, running, Want{Slices: 1, Mem: request.Mem{MiB: size}}, rules)
		if refusal == nil {
			running = append(running, granted...)
			continue
		}
		free := int64(len(inv.GPUs)) * h200
		for _, s := range running {
			free -= s.MemMiB
		}
		if free >= size {
			refused++
		}
	}
	return refused
}

// Every reason is one line of bounded length, on large nodes as well.
func TestReasonsAreShort(t *testing.T) {
	sizes := make([]int64, 64)
	for i := range sizes {
		sizes[i] = int64(1000 + i)
	}
	_, refusal := Place(node(sizes...), []device.Slice{held(0, 1000, 0)}, Want{Slices: 1, Mem: mib(1100)}, Rules{Drain: []device.UUID{uuid(1)}})
	want := "no GPU fits 1100 MiB: GPU 0 has 1000 MiB in all, GPU 1 is draining"
	for i := 2; i < 8; i++ {
		want += fmt.Sprintf(", GPU %d has %d MiB in all", i, 1000+i)
	}
	if want += ", and 56 more"; refusal == nil || refusal.Reason != want {
		t.Errorf("got %+v,\nwant %s", refusal, want)
	}
}
