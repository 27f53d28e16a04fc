// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
)

// inventory is what a node's GPUs are; all nodes are alike.
func inventory(gpus int) device.Inventory {
	var inv device.Inventory
	for i := range gpus {
		inv.GPUs = append(inv.GPUs, device.GPU{UUID: device.UUID(fmt.Sprintf("GPU-%d", i)), Index: device.NVMLIndex(i),
			Minor: device.Minor(i), Type: "h200", MemMiB: gpuMiB})
	}
	return inv
}

// use is what is granted of a GPU.
type use struct {
	mib, percent, shards int64
	slices               int
}

// node is a node as Slurm counts it and as its prolog places.
type node struct {
	number  int
	policy  *policy
	free    room           // memory and time, by counts
	gpus    []use          // nil: one pool
	on      [][]place.Held // of each GPU its slices, by when they end at the latest
	jobs    []*job         // by when they end at the latest
	kept    kept
	soon    []int64   // for each kind when there is room, as far as Slurm knows; unknown: to be found out
	waiters []*waiter // found no room here, the first one first
	claims  *claims   // of those; nil: to be found out
}

// kept is what the plan of slurmctld keeps for a job that it starts later.
type kept struct {
	job   *job
	until int64
	spare room // what is left then beside it
	gpus  set  // where Slurm knows each GPU: which ones
}

const unknown = -1

func newNode(number, gpus int, p *policy) *node {
	n := &node{number: number, policy: p, free: room{int64(gpus) * gpuMiB, int64(gpus) * 100}, soon: make([]int64, len(mix))}
	if !p.pool {
		n.gpus, n.on = make([]use, gpus), make([][]place.Held, gpus)
	}
	n.changed()
	return n
}

func (n *node) changed() {
	for k := range n.soon {
		n.soon[k] = unknown
	}
}

// room is what slurmctld sees.
func (n *node) room() room {
	if !n.policy.byGPU {
		return n.free
	}
	return roomOf(n.gpus)
}

func roomOf(gpus []use) (r room) {
	for _, g := range gpus {
		r[0] = max(r[0], gpuMiB-g.shards)
		if g.slices == 0 {
			r[1]++
		}
	}
	return r
}

// freePart is how much of the node is free, going by the scarcer of memory and time.
func (n *node) freePart() int64 { return min(n.free[0]*100/gpuMiB, n.free[1]) }

// need is what a job of the kind takes of that.
func (p *policy) need(k kind) room {
	switch {
	case !p.byGPU:
		return room{int64(k.slices) * k.mib, int64(k.slices) * k.percent}
	case k.whole():
		return room{gpuMiB, int64(k.slices)}
	}
	return room{k.shards(), 0}
}

// mayBegin: what is kept for another one is left alone, but for what is gone by then.
func (n *node) mayBegin(j *job, now int64) bool {
	k := &n.kept
	return k.job == nil || k.job == j || now+j.limit <= k.until || n.policy.byGPU || k.spare.has(n.policy.need(mix[j.kind]))
}

// pick is Slurm's choice of GPUs, where it knows each one: the first ones that fit, or those of which least is given out.
func (n *node) pick(j *job, now int64) (picked []int) {
	k := mix[j.kind]
	var fit []int
	for i, g := range n.gpus {
		blocked := n.kept.job != nil && n.kept.job != j && now+j.limit > n.kept.until && n.kept.gpus.has(i)
		if !blocked && gpuMiB-g.shards >= k.shards() {
			fit = append(fit, i)
		}
	}
	if len(fit) < k.slices {
		return nil
	}
	if n.policy.leastLoaded {
		slices.SortStableFunc(fit, func(a, b int) int { return int(n.gpus[a].shards - n.gpus[b].shards) })
	}
	return fit[:k.slices]
}

func (u *use) add(k kind, times int64) {
	u.mib += times * k.mib
	u.percent += times * k.percent
	u.shards += times * k.shards()
	u.slices += int(times)
}

// hold puts a slice among those of a GPU. What was there stays as it was, since others may look at it.
func hold(on []place.Held, h place.Held) []place.Held {
	at, _ := slices.BinarySearchFunc(on, h, func(a, b place.Held) int { return cmp.Compare(a.Ends, b.Ends) })
	more := make([]place.Held, 0, len(on)+1)
	return append(append(append(more, on[:at]...), h), on[at:]...)
}

func (p *policy) slice(gpu int, k kind) device.Slice {
	g := p.inv.GPUs[gpu]
	return device.Slice{Device: g.UUID, Index: g.Index, Minor: g.Minor, MemMiB: k.mib, SMPercent: int(k.percent)}
}

func (n *node) take(j *job, now int64) {
	k := mix[j.kind]
	for _, gpu := range j.placed {
		n.gpus[gpu].add(k, 1)
		n.on[gpu] = hold(n.on[gpu], place.Held{Slice: n.policy.slice(gpu, k), Job: j.id, Ends: now + j.limit})
	}
	n.free = room{n.free[0] - j.mem(), n.free[1] - j.percent()}
	if n.kept.job == j {
		n.kept = kept{}
	} else if n.kept.job != nil && !n.policy.byGPU && now+j.limit > n.kept.until {
		n.kept.spare = room{n.kept.spare[0] - j.mem(), n.kept.spare[1] - j.percent()}
	}
	at, _ := slices.BinarySearchFunc(n.jobs, now+j.limit, func(o *job, t int64) int { return int(o.began + o.limit - t) })
	n.jobs = slices.Insert(n.jobs, at, j)
	n.changed()
}

func (n *node) release(j *job) {
	for _, gpu := range j.placed {
		n.gpus[gpu].add(mix[j.kind], -1)
		n.on[gpu] = slices.DeleteFunc(slices.Clone(n.on[gpu]), func(h place.Held) bool { return h.Job == j.id })
	}
	n.free = room{n.free[0] + j.mem(), n.free[1] + j.percent()}
	at := slices.Index(n.jobs, j)
	n.jobs = slices.Delete(n.jobs, at, at+1)
	n.changed()
	n.claims = nil
}

const never = math.MaxInt64

// soonest is when there is room for a job of the kind at the latest, as far as slurmctld knows; 0: now.
func (n *node) soonest(k int) int64 {
	if n.soon[k] == unknown {
		n.soon[k] = n.look(mix[k])
	}
	return n.soon[k]
}

func (n *node) look(k kind) int64 {
	need := n.policy.need(k)
	free, gpus := n.free, n.gpus
	if n.policy.byGPU {
		free, gpus = roomOf(gpus), slices.Clone(gpus)
	}
	if free.has(need) {
		return 0
	}
	for _, j := range n.jobs {
		free = n.without(free, gpus, j)
		if free.has(need) {
			return j.began + j.limit
		}
	}
	return never
}

// without is what there is when a job has ended.
func (n *node) without(free room, gpus []use, j *job) room {
	if !n.policy.byGPU {
		return room{free[0] + j.mem(), free[1] + j.percent()}
	}
	for _, gpu := range j.placed {
		gpus[gpu].add(mix[j.kind], -1)
	}
	return roomOf(gpus)
}

// keep reserves the node for a job that starts here later.
func (n *node) keep(j *job, until int64) {
	n.kept = kept{job: j, until: until}
	free, gpus := n.free, slices.Clone(n.gpus)
	for _, o := range n.jobs {
		if o.began+o.limit <= until {
			free = n.without(free, gpus, o)
		}
	}
	if !n.policy.byGPU {
		need := n.policy.need(mix[j.kind])
		n.kept.spare = room{free[0] - need[0], free[1] - need[1]}
		return
	}
	k := mix[j.kind]
	for i, g := range gpus {
		if n.kept.gpus.size < k.slices && gpuMiB-g.shards >= k.shards() {
			n.kept.gpus.add(i)
		}
	}
}
