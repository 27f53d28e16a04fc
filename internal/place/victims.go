// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Victims are the jobs that must leave for a want to fit, out of those that may be made to, with as little memory as that
// takes on the GPUs where it takes least. None: there is room, or there would not be.
func Victims(inv device.Inventory, held []Held, want Want, rules Rules, may map[uint32]bool) (victims []uint32) {
	type option struct {
		gpu  device.NVMLIndex
		jobs []uint32
		mib  int64
	}
	var options []option
	for _, gpu := range inv.GPUs {
		leave, ok := leaving(gpu, held, want, rules, may)
		if !ok {
			continue
		}
		o := option{gpu: gpu.Index}
		for _, h := range leave {
			o.jobs, o.mib = append(o.jobs, h.Job), o.mib+h.MemMiB
		}
		options = append(options, o)
	}
	if want.Slices <= 0 || len(options) < want.Slices {
		return nil
	}
	slices.SortStableFunc(options, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.mib, b.mib), cmp.Compare(len(a.jobs), len(b.jobs)), cmp.Compare(a.gpu, b.gpu))
	})
	for _, o := range options[:want.Slices] {
		for _, job := range o.jobs {
			if !slices.Contains(victims, job) {
				victims = append(victims, job)
			}
		}
	}
	return needed(inv, held, want, rules, victims)
}

// needed leaves out who turns out to leave in vain: others hold slices on more GPUs than the one that they leave for.
func needed(inv device.Inventory, held []Held, want Want, rules Rules, victims []uint32) []uint32 {
	for i := len(victims) - 1; i >= 0; i-- {
		fewer := slices.Delete(slices.Clone(victims), i, i+1)
		left := slices.DeleteFunc(slices.Clone(held), func(h Held) bool { return slices.Contains(fewer, h.Job) })
		if _, refusal := Place(inv, SlicesOf(left), want, rules); refusal == nil {
			victims = fewer
		}
	}
	return victims
}

// leaving are the slices that must leave a GPU for another one to fit. The smallest leave first; who turns out to leave in
// vain stays.
func leaving(gpu device.GPU, held []Held, want Want, rules Rules, may map[uint32]bool) (leave []Held, ok bool) {
	var stay, candidates []Held
	for _, h := range held {
		switch {
		case h.Device != gpu.UUID:
		case may[h.Job]:
			candidates = append(candidates, h)
		default:
			stay = append(stay, h)
		}
	}
	slices.SortStableFunc(candidates, func(a, b Held) int { return cmp.Compare(a.MemMiB, b.MemMiB) })
	alone := device.Inventory{GPUs: []device.GPU{gpu}}
	fits := func(left []Held) bool {
		return weigh(alone, SlicesOf(left), want, rules)[0].obstacle(want, rules) == none
	}
	gone := 0
	for ; !fits(slices.Concat(stay, candidates[gone:])); gone++ {
		if gone == len(candidates) {
			return nil, false
		}
	}
	stay = slices.Concat(stay, candidates[gone:])
	for _, h := range slices.Backward(candidates[:gone]) {
		if with := append(slices.Clone(stay), h); fits(with) {
			stay = with
		} else {
			leave = append(leave, h)
		}
	}
	return leave, true
}
