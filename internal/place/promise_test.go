// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// drawPiece is a want of which several have room on one GPU.
func drawPiece(t *rapid.T) Want {
	return Want{Priority: drawPriority(t), Slices: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "slices"), SMPercent: rapid.SampledFrom([]int{0, 10, 30, 41, 60, 100}).Draw(t, "sm"),
		Mem: request.Mem{Percent: float64(rapid.SampledFrom([]int{1, 10, 20, 30, 50, 70}).Draw(t, "percent"))}}
}

// drawCrowded is a node on which there is little room.
func drawCrowded(t *rapid.T, ends *rapid.Generator[int64]) (device.Inventory, Rules, []Held) {
	inv, rules := drawNode(t)
	inv.GPUs = inv.GPUs[:min(len(inv.GPUs), 3)]
	rules.SlicesPerGPU += 2
	return inv, rules, drawPieces(t, inv, rules, ends)
}

func drawPieces(t *rapid.T, inv device.Inventory, rules Rules, ends *rapid.Generator[int64]) (all []Held) {
	for i := range rapid.IntRange(3, 12).Draw(t, "held") {
		placed, _ := Place(inv, SlicesOf(all), drawPiece(t), rules)
		end := ends.Draw(t, "ends")
		for _, s := range placed {
			all = append(all, Held{Slice: s, Job: uint32(100 + i), Ends: end})
		}
	}
	return all
}

// Jobs come and go while one waits. It never has its room later than it was promised. Where nobody could promise anything, it has
// room, or a promise, when those have ended that were there before it.
func TestNobodyOvertakesAPromise(t *testing.T) {
	promises, overtook := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ends := rapid.SampledFrom([]int64{0, 0, 3, 5, 8, 13})
		inv, rules, held := drawCrowded(t, ends)
		waiter := Waiter{1, drawPiece(t)}
		waiter.Want.Mem.Percent += 29
		turn := Queue(inv, held, []Waiter{waiter}, rules)[0]
		if turn.Reserved == nil {
			return
		}
		promise, later := turn.At, uint32(1000)
		for now := int64(1); now < 30 && turn.Slices == nil; now++ {
			for range rapid.IntRange(0, 3).Draw(t, "come") {
				later++
				want := drawPiece(t)
				if limit := ends.Draw(t, "limit"); limit != 0 {
					want.Ends = now + limit
				}
				for _, s := range Queue(inv, held, []Waiter{waiter, {later, want}}, rules)[1].Slices {
					held = append(held, Held{s, later, want.Ends})
					overtook++
				}
			}
			if early := rapid.IntRange(-3, len(held)-1).Draw(t, "ends early"); early >= 0 {
				gone := held[early].Job
				held = slices.DeleteFunc(held, func(h Held) bool { return h.Job == gone })
			}
			held = slices.DeleteFunc(held, func(h Held) bool { return h.Ends != 0 && h.Ends <= now })
			turn = Queue(inv, held, []Waiter{waiter}, rules)[0]
			before := slices.ContainsFunc(held, func(h Held) bool { return h.Job < 1000 })
			switch {
			case turn.Slices != nil:
			case promise != 0 && (turn.At == 0 || turn.At > promise):
				t.Fatalf("at %d: it was promised room at %d, and now at %d", now, promise, turn.At)
			case !before && turn.At == 0:
				t.Fatalf("at %d: those before it have ended, and it is promised nothing: %+v", now, held)
			}
			if promise = turn.At; promise != 0 {
				promises++
			}
		}
	})
	if promises == 0 || overtook == 0 {
		t.Errorf("%d promises, and %d began meanwhile: that tries little", promises, overtook)
	}
}
