// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

func heldUntil(gpu int, memMiB int64, ends int64) Held {
	return Held{Slice: held(gpu, memMiB, 0), Ends: ends}
}

func wants(memMiB int64, ends int64) Want { return Want{Slices: 1, Mem: mib(memMiB), Ends: ends} }

func TestQueueKeepsRoomForWhoHasWaitedLongest(t *testing.T) {
	two := node(100, 100)
	for _, c := range []struct {
		what    string
		held    []Held
		waiters []Waiter
		want    []Turn
	}{
		{"there is room", []Held{heldUntil(0, 60, 5)}, []Waiter{{1, wants(70, 0)}},
			[]Turn{{Slices: []device.Slice{{Device: uuid(1), Index: 1, MemMiB: 70}}}}},
		{"the GPU that is free first is kept", []Held{heldUntil(0, 60, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}},
			[]Turn{{Kept: []Kept{{uuid(1), 1, 5}}, At: 5}}},
		{"several must leave", []Held{heldUntil(0, 60, 9), heldUntil(1, 30, 5), heldUntil(1, 30, 7)}, []Waiter{{1, wants(70, 0)}},
			[]Turn{{Kept: []Kept{{uuid(1), 1, 5}}, At: 5}}},
		{"nobody knows when", []Held{heldUntil(0, 60, 0), heldUntil(1, 60, 0)}, []Waiter{{1, wants(70, 0)}},
			[]Turn{{Kept: []Kept{{uuid(0), 1, 0}}}}},
		{"the second one has the other GPU", []Held{heldUntil(0, 60, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(50, 0)}},
			[]Turn{{Kept: []Kept{{uuid(1), 1, 5}}, At: 5}, {Kept: []Kept{{uuid(0), 2, 9}}, At: 9}}},
		{"a small one goes where nothing is kept", []Held{heldUntil(0, 60, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(30, 0)}},
			[]Turn{{Kept: []Kept{{uuid(1), 1, 5}}, At: 5}, {Slices: []device.Slice{{Device: uuid(0), MemMiB: 30}}}}},
		{"what ends before goes anywhere", []Held{heldUntil(0, 80, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(30, 5)}},
			[]Turn{{Kept: []Kept{{uuid(1), 1, 5}}, At: 5}, {Slices: []device.Slice{{Device: uuid(1), Index: 1, MemMiB: 30}}}}},
		{"what ends after it waits", []Held{heldUntil(0, 80, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(30, 6)}},
			[]Turn{{Kept: []Kept{{uuid(1), 1, 5}}, At: 5}, {Kept: []Kept{{uuid(0), 2, 9}}, At: 9}}},
		{"room for the first is none for the second", []Held{heldUntil(0, 60, 9)}, []Waiter{{1, wants(70, 8)}, {2, wants(50, 0)}},
			[]Turn{{Slices: []device.Slice{{Device: uuid(1), Index: 1, MemMiB: 70}}}, {Kept: []Kept{{uuid(1), 2, 8}}, At: 8}}},
		{"all GPUs are kept", []Held{heldUntil(0, 60, 9), heldUntil(1, 60, 5)}, []Waiter{{1, Want{Slices: 2, Mem: mib(70)}}, {2, wants(50, 0)}},
			[]Turn{{Kept: []Kept{{uuid(1), 1, 9}, {uuid(0), 1, 9}}, At: 9}, {}}},
		{"no GPU will ever do", nil, []Waiter{{1, wants(101, 0)}, {2, wants(50, 0)}},
			[]Turn{{}, {Slices: []device.Slice{{Device: uuid(0), MemMiB: 50}}}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := Queue(two, c.held, c.waiters, Rules{})
			for i := range got {
				for j := range got[i].Slices {
					got[i].Slices[j].Minor = 0
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAKeptGPUIsNamed(t *testing.T) {
	rules := Rules{Kept: []Kept{{uuid(0), 7, 0}, {uuid(1), 8, 50}}}
	_, refusal := Place(node(100, 100), nil, wants(10, 51), rules)
	want := &Refusal{Fragmented, "no GPU fits 10 MiB: GPU 0 is kept for job 7, which has waited longer, GPU 1 is kept for job 8, which has waited longer"}
	if diff := cmp.Diff(want, refusal); diff != "" {
		t.Error(diff)
	}
}

// Whatever stands there and whoever waits: what all turns take together fits, and no turn takes what is kept for
// one before it.
func TestQueueGivesNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv, rules := drawNode(t)
		var all []Held
		for range rapid.IntRange(0, 12).Draw(t, "held") {
			want := drawWant(t)
			placed, _ := Place(inv, SlicesOf(all), want, rules)
			for _, s := range placed {
				all = append(all, Held{Slice: s, Ends: rapid.Int64Range(0, 20).Draw(t, "ends")})
			}
		}
		var waiters []Waiter
		for i := range rapid.IntRange(0, 6).Draw(t, "waiters") {
			want := drawWant(t)
			want.Ends = rapid.Int64Range(0, 20).Draw(t, "waiter ends")
			waiters = append(waiters, Waiter{uint32(i + 1), want})
		}
		var kept []Kept
		taken := SlicesOf(all)
		for i, turn := range Queue(inv, all, waiters, rules) {
			want := waiters[i].Want
			if _, refusal := Place(inv, taken, want, Rules{rules.SlicesPerGPU, rules.MemOvercommit, rules.Drain, rules.DefaultPlace, kept}); (refusal == nil) != (turn.Slices != nil) {
				t.Fatalf("waiter %d: refusal %+v, turn %+v", i, refusal, turn)
			}
			if turn.Slices != nil && len(turn.Slices) != want.Slices || turn.Kept != nil && len(turn.Kept) != want.Slices {
				t.Fatalf("waiter %d wants %d slices: %+v", i, want.Slices, turn)
			}
			for _, s := range turn.Slices {
				for _, gpu := range inv.GPUs {
					if gpu.UUID == s.Device && !allowed(gpu, taken, want, rules) {
						t.Fatalf("waiter %d does not fit %s", i, gpu.UUID)
					}
				}
				for _, k := range kept {
					if k.Device == s.Device && (want.Ends == 0 || k.Until == 0 || want.Ends > k.Until) {
						t.Fatalf("waiter %d takes what is kept for job %d", i, k.Job)
					}
				}
			}
			taken, kept = append(taken, turn.Slices...), append(kept, turn.Kept...)
		}
	})
}

func BenchmarkQueue(b *testing.B) {
	inv := node(h200, h200, h200, h200, h200, h200, h200, h200)
	var all []Held
	for i := range 80 {
		all = append(all, heldUntil(i%8, 14000, int64(i)))
	}
	var waiters []Waiter
	for i := range 100 {
		waiters = append(waiters, Waiter{uint32(i + 1), wants(50000, 0)})
	}
	for b.Loop() {
		Queue(inv, all, waiters, Rules{SlicesPerGPU: 10, MemOvercommit: 1})
	}
}
