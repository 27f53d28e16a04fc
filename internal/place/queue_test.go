// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

func heldUntil(gpu int, memMiB int64, ends int64) Held {
	return Held{Slice: held(gpu, memMiB, 0), Ends: ends}
}

func wants(memMiB int64, ends int64) Want { return Want{Slices: 1, Mem: mib(memMiB), Ends: ends} }

// beside is the room on a GPU of which memory alone is taken.
func beside(memMiB int64) Room { return Room{memMiB, 100, math.MaxInt32, 1} }

func latency(h Held) Held {
	h.Slice = of(device.PriorityLatency, h.Slice)
	return h
}

func latencyOf(memMiB int64) Want {
	return Want{Slices: 1, Mem: mib(memMiB), Priority: device.PriorityLatency}
}

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
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, beside(30)}}, At: 5}}},
		{"several must leave", []Held{heldUntil(0, 60, 9), heldUntil(1, 30, 5), heldUntil(1, 30, 7)}, []Waiter{{1, wants(70, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, beside(0)}}, At: 5}}},
		{"nobody knows when", []Held{heldUntil(0, 60, 0), heldUntil(1, 60, 0)}, []Waiter{{1, wants(70, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(0), 1, 0, beside(30)}}}}},
		{"the second one has the other GPU", []Held{heldUntil(0, 60, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(50, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, beside(30)}}, At: 5}, {Reserved: []Reservation{{uuid(0), 2, 9, beside(50)}}, At: 9}}},
		{"a small one goes where nothing is kept", []Held{heldUntil(0, 60, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(30, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, beside(30)}}, At: 5}, {Slices: []device.Slice{{Device: uuid(0), MemMiB: 30}}}}},
		{"what ends before goes anywhere", []Held{heldUntil(0, 80, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(30, 5)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, beside(30)}}, At: 5}, {Slices: []device.Slice{{Device: uuid(1), Index: 1, MemMiB: 30}}}}},
		{"what ends after it waits, unless it fits beside it", []Held{heldUntil(0, 80, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(70, 0)}, {2, wants(31, 6)}, {3, wants(30, 6)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, beside(30)}}, At: 5}, {Reserved: []Reservation{{uuid(0), 2, 9, beside(69)}}, At: 9}, {Slices: []device.Slice{{Device: uuid(1), Index: 1, MemMiB: 30}}}}},
		{"room for the first is none for the second", []Held{heldUntil(0, 60, 9)}, []Waiter{{1, wants(70, 8)}, {2, wants(50, 0)}},
			[]Turn{{Slices: []device.Slice{{Device: uuid(1), Index: 1, MemMiB: 70}}}, {Reserved: []Reservation{{uuid(1), 2, 8, beside(50)}}, At: 8}}},
		{"all GPUs are kept", []Held{heldUntil(0, 60, 9), heldUntil(1, 60, 5)}, []Waiter{{1, Want{Slices: 2, Mem: mib(70)}}, {2, wants(50, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 9, beside(30)}, {uuid(0), 1, 9, beside(30)}}, At: 9}, {}}},
		{"the room beside it goes once", []Held{heldUntil(0, 95, 9), heldUntil(1, 60, 5)}, []Waiter{{1, wants(90, 0)}, {2, wants(10, 0)}, {3, wants(6, 0)}, {4, wants(1, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, beside(10)}}, At: 5}, {Slices: []device.Slice{{Device: uuid(1), Index: 1, MemMiB: 10}}},
				{Reserved: []Reservation{{uuid(0), 3, 9, beside(94)}}, At: 9}, {Slices: []device.Slice{{Device: uuid(0), MemMiB: 1}}}}},
		{"two that nobody knows the end of", []Held{heldUntil(0, 60, 0), heldUntil(1, 60, 0)}, []Waiter{{1, wants(70, 0)}, {2, wants(50, 0)}, {3, wants(20, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(0), 1, 0, beside(30)}}}, {Reserved: []Reservation{{uuid(1), 2, 0, beside(50)}}}, {Slices: []device.Slice{{Device: uuid(0), MemMiB: 20}}}}},
		{"a second slice of latency", []Held{latency(heldUntil(0, 60, 9)), latency(heldUntil(1, 60, 5))}, []Waiter{{1, latencyOf(10)}, {2, latencyOf(10)}, {3, wants(20, 0)}},
			[]Turn{{Reserved: []Reservation{{uuid(1), 1, 5, Room{90, 100, math.MaxInt32, 0}}}, At: 5}, {Reserved: []Reservation{{uuid(0), 2, 9, Room{90, 100, math.MaxInt32, 0}}}, At: 9},
				{Slices: []device.Slice{{Device: uuid(0), MemMiB: 20}}}}},
		{"no GPU will ever do", nil, []Waiter{{1, wants(101, 0)}, {2, wants(50, 0)}},
			[]Turn{{}, {Slices: []device.Slice{{Device: uuid(0), MemMiB: 50}}}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := Queue(two, c.held, c.waiters, Rules{LatencyPerGPU: 1})
			for i := range got {
				for j := range got[i].Slices {
					got[i].Slices[j].Minor = 0
				}
				if (got[i].Why == nil) != (got[i].Slices != nil) {
					t.Errorf("waiter %d: %+v", i, got[i])
				}
				got[i].Why = nil
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAKeptGPUIsNamed(t *testing.T) {
	rules := Rules{Reserved: []Reservation{{uuid(0), 7, 0, beside(9)}, {uuid(1), 8, 50, Room{10, 100, 0, 0}}}}
	_, refusal := Place(node(100, 100), nil, wants(10, 51), rules)
	want := &Refusal{Kind: Fragmented, Reason: "no GPU fits 10 MiB: GPU 0 is kept for job 7, which has waited longer, GPU 1 is kept for job 8, which has waited longer"}
	if diff := cmp.Diff(want, refusal); diff != "" {
		t.Error(diff)
	}
}

// Whatever stands there and whoever waits: what all turns take together fits, and no turn takes what is kept for
// one before it.
func TestQueueGivesNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv, rules := drawNode(t)
		all := drawHeld(t, inv, rules)
		var waiters []Waiter
		for i := range rapid.IntRange(0, 6).Draw(t, "waiters") {
			want := drawWant(t)
			want.Ends = rapid.Int64Range(0, 20).Draw(t, "waiter ends")
			waiters = append(waiters, Waiter{uint32(i + 1), want})
		}
		var kept []Reservation
		taken := SlicesOf(all)
		for i, turn := range Queue(inv, all, waiters, rules) {
			want := waiters[i].Want
			behind := rules
			behind.Reserved = kept
			if _, refusal := Place(inv, taken, want, behind); (refusal == nil) != (turn.Slices != nil) {
				t.Fatalf("waiter %d: refusal %+v, turn %+v", i, refusal, turn)
			}
			if turn.Slices != nil && len(turn.Slices) != want.Slices || turn.Reserved != nil && len(turn.Reserved) != want.Slices {
				t.Fatalf("waiter %d wants %d slices: %+v", i, want.Slices, turn)
			}
			for _, s := range turn.Slices {
				for _, gpu := range inv.GPUs {
					if gpu.UUID == s.Device && !allowed(gpu, taken, want, rules) {
						t.Fatalf("waiter %d does not fit %s", i, gpu.UUID)
					}
				}
				for _, k := range kept {
					if gpu, _ := inv.ByUUID(s.Device); k.From(gpu, want) {
						t.Fatalf("waiter %d takes what is kept for job %d", i, k.Job)
					}
				}
			}
			taken, kept = append(taken, turn.Slices...), Behind(kept, turn, inv, want)
		}
	})
}

// A job that begins beside what is kept for others delays none of them: each has room as soon as before. And on a node of one GPU
// none is kept from it that would delay nobody.
func TestNobodyIsDelayedByALaterJob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv, rules := drawNode(t)
		if rapid.Bool().Draw(t, "one GPU") {
			inv.GPUs = inv.GPUs[:1]
		}
		all := drawHeld(t, inv, rules)
		var waiters []Waiter
		for i := range rapid.IntRange(1, 4).Draw(t, "waiters") {
			want := drawWant(t)
			want.Ends = rapid.Int64Range(0, 20).Draw(t, "waiter ends")
			waiters = append(waiters, Waiter{uint32(i + 1), want})
		}
		before := Queue(inv, all, waiters, rules)
		var kept []Reservation
		var claimed []device.Slice
		for i, turn := range before {
			claimed = append(claimed, turn.Slices...)
			kept = Behind(kept, turn, inv, waiters[i].Want)
		}
		later := drawWant(t)
		later.Ends = rapid.Int64Range(0, 20).Draw(t, "later ends")
		behind := rules
		behind.Reserved = kept
		taken := append(SlicesOf(all), claimed...)
		placed, _ := Place(inv, taken, later, behind)
		if placed == nil && len(inv.GPUs) == 1 {
			if placed, _ = Place(inv, taken, later, rules); placed != nil && len(waiters) == 1 && !isDelayed(inv, all, placed, later, waiters, rules, before) {
				t.Fatalf("%+v is kept out for nothing: %+v", later, before)
			}
			return
		}
		if placed != nil && isDelayed(inv, all, placed, later, waiters, rules, before) {
			t.Fatalf("%+v delays one of %+v: %+v", later, waiters, before)
		}
	})
}

func drawHeld(t *rapid.T, inv device.Inventory, rules Rules) (all []Held) {
	for range rapid.IntRange(0, 12).Draw(t, "held") {
		placed, _ := Place(inv, SlicesOf(all), drawWant(t), rules)
		ends := rapid.Int64Range(0, 20).Draw(t, "ends")
		for _, s := range placed {
			all = append(all, Held{Slice: s, Ends: ends})
		}
	}
	return all
}

// isDelayed says that a waiter would have its turn later, or not any more, if a later job began first. Who has room takes what it was to
// take: which GPU a job picks is by what stands there, and may be another one beside the later job.
func isDelayed(inv device.Inventory, all []Held, placed []device.Slice, later Want, waiters []Waiter, rules Rules, before []Turn) bool {
	all = slices.Clone(all)
	for _, s := range placed {
		all = append(all, Held{Slice: s, Ends: later.Ends})
	}
	rules.Reserved = slices.Clone(rules.Reserved)
	for i, w := range waiters {
		was, turn := before[i], Turn{Slices: before[i].Slices}
		for _, s := range turn.Slices {
			all = append(all, Held{Slice: s, Ends: w.Want.Ends})
		}
		if turn.Slices == nil {
			turn = Queue(inv, all, []Waiter{w}, rules)[0]
			if was.Reserved != nil && turn.Slices == nil && (turn.Reserved == nil || was.At != 0 && (turn.At == 0 || turn.At > was.At)) {
				return true
			}
			for _, s := range turn.Slices {
				all = append(all, Held{Slice: s, Ends: w.Want.Ends})
			}
		}
		rules.Reserved = Behind(rules.Reserved, turn, inv, w.Want)
	}
	return false
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
