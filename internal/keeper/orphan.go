// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"maps"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Orphans are processes that have ended and still have memory of a GPU: another process has their descriptors, for example a child. The driver and its log go
// on to name the process that has ended.
type Orphans struct {
	PIDs  []int
	Heirs []Heir // processes that may have the descriptors
}

// Heir is a process of a job that has descriptors of the driver's control device.
type Heir struct {
	Process       // none of its groups
	FDs     []int // these descriptors
	Other   bool  // it may have them from a process that is alive
}

// died are the groups of a process that has ended.
type died struct {
	Process
	at time.Duration
}

// remember keeps a process's groups until NVML shows whether these are gone.
func (k *keeper) remember(o *owner) {
	if o.heir == nil && !o.Ended() {
		return
	}
	maps.DeleteFunc(k.died, func(_ int, d died) bool { return k.now-d.at >= diedFor })
	k.died[o.PID] = died{o.Process, k.now}
}

// acts is the process that uses the groups: the owner, or the heir of an owner that has ended.
func (o *owner) acts() Process {
	p := o.Process
	if o.heir != nil {
		p.Process = *o.heir
	}
	return p
}

// orphan follows a process that has ended by way of its heir.
func (k *keeper) orphan(g *gpu, pid int, heirs []Heir) (o *owner, isNew bool) {
	for _, o := range k.owners {
		if o.PID == pid && o.heir != nil && !o.Ended() {
			return o, false
		}
	}
	was, known := k.died[pid]
	heir, found := heirOf(g, was.Job, heirs)
	if !found {
		return nil, false
	}
	p := Process{Process: audit.Process{PID: pid, StartTicks: was.StartTicks}, Job: heir.Job, UID: heir.UID}
	if known && was.Job == heir.Job {
		p.Groups = slices.Clone(was.Groups)
	}
	if before := k.owners[p.Process]; before != nil {
		k.drop(before)
	}
	if o = k.newOwnerBy(p, heir.PID); o == nil {
		return nil, false
	}
	is := heir.Process.Process
	o.heir, o.honest = &is, true // an idle heir with memory does no harm: children of a killed program may be about to end
	k.rename(o, heir.FDs)
	k.takeGroups(o)
	return o, true
}

// heirOf is the heir of a process that has ended: a process of its job, if that is known, or else of the only job to which it can belong.
func heirOf(g *gpu, job uint32, heirs []Heir) (Heir, bool) {
	heirs = slices.DeleteFunc(slices.Clone(heirs), func(h Heir) bool {
		return job != 0 && h.Job != job || !slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.Job == h.Job })
	})
	// Where the job is not known, a process with groups of its own on the GPU is no candidate: descriptors can also wait in a socket, in no process.
	if own := slices.DeleteFunc(slices.Clone(heirs), func(h Heir) bool { return h.Other }); len(own) > 0 || job == 0 {
		heirs = own
	}
	if len(heirs) == 0 || slices.ContainsFunc(heirs, func(h Heir) bool { return h.Job != heirs[0].Job }) {
		return Heir{}, false
	}
	return heirs[0], true
}

// rename finds the heir's descriptor for each group: the driver takes a call only through the open file that made the client.
func (k *keeper) rename(o *owner, fds []int) {
	at := map[uint32]int32{} // of each client
	for i := range o.Process.Groups {
		named := &o.Process.Groups[i]
		fd, known := at[named.Client]
		for _, one := range append([]int{int(named.FD)}, fds...) { // a forked process has the same number
			if known || !slices.Contains(fds, one) || !k.namesOf(o.Job).Afford(k.now) {
				continue
			}
			_, err := o.Slice(channels.Group{FD: one, Client: named.Client, Subdevice: named.Subdevice, Handle: named.Group})
			if known = err == nil; known {
				fd = int32(one)
				at[named.Client] = fd
			}
		}
		if known {
			named.FD = fd
		}
	}
}

// forgetOrphans drops orphans that NVML does not show any more.
func (k *keeper) forgetOrphans(seen map[device.UUID]Orphans) {
	for _, o := range k.owners {
		if o.heir == nil || len(o.groups) > 0 {
			continue
		}
		named := false
		for _, orphans := range seen {
			named = named || slices.Contains(orphans.PIDs, o.PID)
		}
		if !named {
			k.drop(o)
		}
	}
}
