// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package place chooses the GPUs of a job's slices. It is pure: the same inventory, slices, want
// and rules give the same answer.
package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Want is what a job is to hold: equal slices on as many different GPUs.
type Want struct {
	Slices     int
	Mem        request.Mem // per slice; a percentage is of the GPU that is chosen
	CeilingMiB int64       // no slice is larger, whatever a percentage comes to; 0: no ceiling
	SMPercent  int         // 0: no cap; 100: the GPU to itself
	Priority   device.Priority
	Place      request.Place
	GPU, UUID  request.Filter
	Prefer     []device.Minor // chosen before others that fit
	Only       []device.Minor // no others: Slurm has picked these; nil: any
	Ends       int64          // when the job ends at the latest, in seconds since 1970; 0: not known
}

// WantOf is what a request comes to under its entitlement.
func WantOf(r request.Request, e request.Entitlement) Want {
	ceiling, sm := request.Limits(request.Request{SMPercent: r.SMPercent}, e, 0)
	want := Want{
		Slices: e.SliceCount(), Mem: r.Mem, CeilingMiB: ceiling, SMPercent: sm,
		Priority: device.PriorityOf(string(r.Priority)), Place: r.Place, GPU: r.GPU, UUID: r.UUID,
	}
	if ceiling == 0 || r.Mem.IsZero() {
		want.Mem = request.Mem{MiB: ceiling}
	}
	return want
}

// preferred is 0 for the GPUs that are chosen first.
func (w Want) preferred(l load) int {
	if slices.Contains(w.Prefer, l.gpu.Minor) {
		return 0
	}
	return 1
}

// memOn is the memory of a slice on a GPU of that size.
func (w Want) memOn(gpuMiB int64) int64 {
	memMiB := w.Mem.OfGPU(gpuMiB)
	if w.CeilingMiB > 0 {
		memMiB = min(memMiB, w.CeilingMiB)
	}
	return memMiB
}

// WantOfWhole is what whole GPUs come to that Slurm gave out.
func WantOfWhole(gpus request.GPUs) Want {
	want := Want{Slices: gpus.Count, Mem: request.Mem{Percent: 100}, SMPercent: 100, GPU: request.Filter{Only: gpus.Types}}
	for _, n := range gpus.Numbers {
		want.Prefer = append(want.Prefer, device.Minor(n))
	}
	return want
}

// Rules are the node's: they hold for every job.
type Rules struct {
	SlicesPerGPU  int           // 0: no bound
	MemOvercommit float64       // memory granted on a GPU may come to this many times what it has; 0 is 1.0
	Drain         []device.UUID // or beginnings of them
	LatencyPerGPU int           // at most so many slices of latency on one GPU; 0: no bound
	DefaultPlace  request.Place // of a want that names none; pack if this names none either
	Reserved      []Reservation // for jobs that have waited longer
}

// RulesOf are a node's rules as its configuration has them.
func RulesOf(slicesPerGPU int, memOvercommit float64, drain []device.UUID, latencyPerGPU int, defaultPlace request.Place) Rules {
	return Rules{SlicesPerGPU: slicesPerGPU, MemOvercommit: memOvercommit, Drain: drain, LatencyPerGPU: latencyPerGPU, DefaultPlace: defaultPlace}
}

// load is one GPU and what stands on it.
type load struct {
	gpu      device.GPU
	draining bool
	slices   int
	latency  int    // slices of that priority
	memMiB   int64  // granted
	sm       int    // percent granted to capped slices
	alone    bool   // held by a slice of 100 %
	freeMiB  int64  // what may still be granted
	askMiB   int64  // size of the wanted slice here
	keptFor  uint32 // the job that has waited longer; 0: none
}

// Place chooses a GPU for each slice, or says why it cannot. taken is every slice that is held on
// the node; those on GPUs that the inventory lacks are no hindrance. The answer is in NVML order.
func Place(inv device.Inventory, taken []device.Slice, want Want, rules Rules) ([]device.Slice, *Refusal) {
	loads := weigh(inv, taken, want, rules)
	fits := make([]load, 0, len(loads))
	for _, l := range loads {
		if l.obstacle(want, rules) == none {
			fits = append(fits, l)
		}
	}
	if !want.valid() || len(fits) < want.Slices {
		return nil, refuse(inv, loads, len(fits), want, rules)
	}
	order := fullestFirst
	if cmp.Or(want.Place, rules.DefaultPlace) == request.PlaceSpread {
		order = emptiestFirst
	}
	slices.SortFunc(fits, func(a, b load) int { return cmp.Or(want.preferred(a)-want.preferred(b), order(a, b)) })
	fits = fits[:want.Slices]
	slices.SortFunc(fits, byIndex)
	granted := make([]device.Slice, 0, len(fits))
	for _, l := range fits {
		granted = append(granted, device.Slice{
			Device: l.gpu.UUID, Index: l.gpu.Index, Minor: l.gpu.Minor,
			MemMiB: l.askMiB, SMPercent: want.SMPercent, Priority: want.Priority,
		})
	}
	return granted, nil
}

func (w Want) valid() bool {
	return w.Slices > 0 && (w.Mem.MiB > 0 || w.Mem.Percent > 0) && w.SMPercent >= 0 && w.SMPercent <= 100
}

func weigh(inv device.Inventory, taken []device.Slice, want Want, rules Rules) []load {
	loads := make([]load, len(inv.GPUs))
	at := make(map[device.UUID]int, len(inv.GPUs))
	for i, gpu := range inv.GPUs {
		at[gpu.UUID] = i
		loads[i] = load{
			gpu:      gpu,
			draining: slices.ContainsFunc(rules.Drain, func(name device.UUID) bool { return request.NamesUUID(name, gpu.UUID) }),
			freeMiB:  gpu.GrantableMiB(rules.MemOvercommit),
			askMiB:   want.memOn(gpu.MemMiB),
			keptFor:  rules.keptFor(gpu, want),
		}
	}
	for _, slice := range taken {
		i := int(slice.Index) // GPUs are mostly in this order, and a map takes its time
		if i < 0 || i >= len(inv.GPUs) || inv.GPUs[i].UUID != slice.Device {
			var ok bool
			if i, ok = at[slice.Device]; !ok {
				continue
			}
		}
		l := &loads[i]
		l.slices++
		l.memMiB += slice.MemMiB
		l.freeMiB -= slice.MemMiB
		l.sm += slice.SMPercent
		l.alone = l.alone || slice.SMPercent == 100
		if slice.Priority == device.PriorityLatency {
			l.latency++
		}
	}
	return loads
}

// obstacle is why a slice cannot stand on a GPU. What lasts comes before what passes.
type obstacle int

const (
	none         obstacle = iota
	lost                  // NVML cannot use it
	draining              // the admin wants it empty
	notPicked             // Slurm picked another one
	notType               // excluded by --vgpu-gpu
	notUUID               // excluded by --vgpu-uuid
	tooSmall              // an empty one of this size would not do
	alone                 // held by a slice of 100 %
	notEmpty              // 100 % is wanted
	full                  // as many slices as the node allows on a GPU
	latencyTaken          // … as many of priority latency
	noMem
	noTime
	kept // for a job that has waited longer
)

func (l load) obstacle(want Want, rules Rules) obstacle {
	switch {
	case l.gpu.Lost != "":
		return lost
	case l.draining:
		return draining
	case want.Only != nil && !slices.Contains(want.Only, l.gpu.Minor):
		return notPicked
	case !want.GPU.Admits(l.gpu.Type):
		return notType
	case !want.UUID.AdmitsUUID(string(l.gpu.UUID)):
		return notUUID
	case l.askMiB > l.gpu.MemMiB || l.askMiB > l.freeMiB+l.memMiB:
		return tooSmall
	case l.alone:
		return alone
	case want.SMPercent == 100 && l.slices > 0:
		return notEmpty
	case rules.SlicesPerGPU > 0 && l.slices >= rules.SlicesPerGPU:
		return full
	case want.Priority == device.PriorityLatency && l.latencyRoom(rules) < 1:
		return latencyTaken
	case l.askMiB > l.freeMiB:
		return noMem
	case want.SMPercent > 0 && want.SMPercent+l.sm > 100:
		return noTime
	case l.keptFor != 0:
		return kept
	}
	return none
}

// latencyRoom is how many more slices of that priority the node allows on a GPU.
func (l load) latencyRoom(rules Rules) int {
	if rules.LatencyPerGPU == 0 {
		return math.MaxInt32
	}
	return rules.LatencyPerGPU - l.latency
}

// fullestFirst is best fit: the GPU on which the least memory would remain, then the one with the
// least time left, then the most slices. NVML order decides the rest.
func fullestFirst(a, b load) int {
	return cmp.Or(cmp.Compare(a.freeMiB-a.askMiB, b.freeMiB-b.askMiB), cmp.Compare(b.sm, a.sm), cmp.Compare(b.slices, a.slices), byIndex(a, b))
}

// emptiestFirst is the other end: the most memory remaining, the most time left, the fewest slices.
func emptiestFirst(a, b load) int {
	return cmp.Or(cmp.Compare(b.freeMiB-b.askMiB, a.freeMiB-a.askMiB), cmp.Compare(a.sm, b.sm), cmp.Compare(a.slices, b.slices), byIndex(a, b))
}

func byIndex(a, b load) int {
	return cmp.Or(cmp.Compare(a.gpu.Index, b.gpu.Index), cmp.Compare(a.gpu.UUID, b.gpu.UUID))
}
