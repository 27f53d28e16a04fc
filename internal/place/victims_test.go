// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func heldBy(job uint32, gpu int, memMiB int64, sm int) Held {
	return Held{Slice: held(gpu, memMiB, sm), Job: job}
}

func TestVictims(t *testing.T) {
	two := node(100, 100)
	for _, c := range []struct {
		what string
		held []Held
		want Want
		may  []uint32
		out  []uint32
	}{
		{"there is room", []Held{heldBy(1, 0, 50, 0)}, wants(75, 0), []uint32{1}, nil},
		{"the one on the first of equals", []Held{heldBy(1, 0, 50, 0), heldBy(2, 1, 50, 0)}, wants(75, 0), []uint32{1, 2}, []uint32{1}},
		{"the one who may", []Held{heldBy(1, 0, 50, 0), heldBy(2, 1, 50, 0)}, wants(75, 0), []uint32{2}, []uint32{2}},
		{"nobody may", []Held{heldBy(1, 0, 50, 0), heldBy(2, 1, 50, 0)}, wants(75, 0), nil, nil},
		{"who may is not enough", []Held{heldBy(1, 0, 50, 0), heldBy(2, 1, 40, 0), heldBy(3, 1, 10, 0)}, wants(75, 0), []uint32{3}, nil},
		{"the least memory", []Held{heldBy(1, 0, 60, 0), heldBy(2, 1, 50, 0)}, wants(75, 0), []uint32{1, 2}, []uint32{2}},
		{"as few as will do", []Held{heldBy(1, 0, 10, 0), heldBy(2, 0, 30, 0), heldBy(3, 0, 40, 0), heldBy(4, 1, 100, 0)}, wants(50, 0), []uint32{1, 2, 3}, []uint32{2}},
		{"time", []Held{heldBy(1, 0, 10, 60), heldBy(2, 1, 10, 30), heldBy(3, 1, 5, 30)}, Want{Slices: 1, Mem: mib(1), SMPercent: 50}, []uint32{1, 2, 3}, []uint32{3}},
		{"a GPU of its own", []Held{heldBy(1, 0, 10, 0), heldBy(2, 1, 10, 0), heldBy(3, 1, 5, 0)}, Want{Slices: 1, Mem: mib(1), SMPercent: 100}, []uint32{1, 2, 3}, []uint32{1}},
		{"two GPUs, one job on both", []Held{heldBy(1, 0, 50, 0), heldBy(1, 1, 50, 0)}, Want{Slices: 2, Mem: mib(75)}, []uint32{1}, []uint32{1}},
		{"too many", nil, Want{Slices: 3, Mem: mib(1)}, nil, nil},
		{"never", nil, wants(101, 0), nil, nil},
	} {
		may := map[uint32]bool{}
		for _, job := range c.may {
			may[job] = true
		}
		if got := Victims(two, c.held, c.want, Rules{}, may); !slices.Equal(got, c.out) {
			t.Errorf("%s: got %v, want %v", c.what, got, c.out)
		}
	}
}

// Without the victims there is room, with any of them left there is none where they were chosen for one GPU, and nobody
// is among them who may not be made to leave.
func TestVictimsMakeRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv, rules := drawNode(t)
		var all []Held
		may := map[uint32]bool{}
		for i := range rapid.IntRange(0, 14).Draw(t, "jobs") {
			placed, _ := Place(inv, SlicesOf(all), drawWant(t), rules)
			may[uint32(i)] = rapid.Bool().Draw(t, "may")
			for _, s := range placed {
				all = append(all, Held{Slice: s, Job: uint32(i)})
			}
		}
		want := drawWant(t)
		victims := Victims(inv, all, want, rules, may)
		without := func(gone []uint32) []Held {
			return slices.DeleteFunc(slices.Clone(all), func(h Held) bool { return slices.Contains(gone, h.Job) })
		}
		for i, v := range victims {
			if !may[v] {
				t.Fatalf("job %d may not be made to leave", v)
			}
			fewer := slices.Delete(slices.Clone(victims), i, i+1)
			if _, refusal := Place(inv, SlicesOf(without(fewer)), want, rules); refusal == nil {
				t.Fatalf("job %d leaves in vain, beside %v", v, fewer)
			}
		}
		_, refusal := Place(inv, SlicesOf(without(victims)), want, rules)
		if victims != nil && refusal != nil {
			t.Fatalf("no room without %v: %s", victims, refusal.Reason)
		}
		everybody := without(keys(may))
		if _, before := Place(inv, SlicesOf(all), want, rules); before != nil && victims == nil {
			if _, after := Place(inv, SlicesOf(everybody), want, rules); after == nil {
				t.Fatalf("%v could leave, and there would be room", keys(may))
			}
		}
	})
}

func keys(may map[uint32]bool) (jobs []uint32) {
	for job, ok := range may {
		if ok {
			jobs = append(jobs, job)
		}
	}
	return jobs
}
