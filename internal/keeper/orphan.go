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

// Orphans are processes that have ended and still have memory of a GPU: another one has their descriptors, as one that they have begun. The driver and
// its log go on to name the one that has ended.
type Orphans struct {
	PIDs  []int
	Heirs []Heir // who may have the descriptors
}

// Heir is a process of a job that has descriptors of the driver's control device.
type Heir struct {
	Process       // none of its groups
	FDs     []int // these descriptors
	Other   bool  // it may have them from one that is alive
}

// died is what was known of a process that has ended.
type died struct {
	Process
	at time.Duration
}

// remember keeps what a process had until NVML has said whether it is all gone.
func (k *keeper) remember(o *owner) {
	if o.heir == nil && !o.Ended() {
		return
	}
	maps.DeleteFunc(k.died, func(_ int, d died) bool { return k.now-d.at >= diedFor })
	k.died[o.PID] = died{o.Process, k.now}
}

// acts is the process that does what is done: of one that has ended, who has its descriptors.
func (o *owner) acts() Process {
	p := o.Process
	if o.heir != nil {
		p.Process = *o.heir
	}
	return p
}

// orphan follows a process that has ended as the one that has its descriptors now.
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
	o.heir, o.honest = &is, true // an idle one that has memory does no harm: children of a program that was killed may be about to end
	k.rename(o, heir.FDs)
	k.takeGroups(o)
	return o, true
}

// heirOf is who has the descriptors of a process that has ended: one of its job, if that is known, or else of the only job whose it can be.
func heirOf(g *gpu, job uint32, heirs []Heir) (Heir, bool) {
	heirs = slices.DeleteFunc(slices.Clone(heirs), func(h Heir) bool {
		return job != 0 && h.Job != job || !slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.Job == h.Job })
	})
	// Of a job that is not known, whoever is on the GPU for himself is no candidate: descriptors can wait in a socket, where nobody has them.
	if own := slices.DeleteFunc(slices.Clone(heirs), func(h Heir) bool { return h.Other }); len(own) > 0 || job == 0 {
		heirs = own
	}
	if len(heirs) == 0 || slices.ContainsFunc(heirs, func(h Heir) bool { return h.Job != heirs[0].Job }) {
		return Heir{}, false
	}
	return heirs[0], true
}

// rename finds which of its descriptors each group is of now: the driver takes the call through the open file that made the client alone.
func (k *keeper) rename(o *owner, fds []int) {
	at := map[uint32]int32{} // of each client
	for i := range o.Process.Groups {
		named := &o.Process.Groups[i]
		fd, known := at[named.Client]
		for _, one := range append([]int{int(named.FD)}, fds...) { // who was forked has the same number
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

// forgetOrphans drops those of whom NVML shows nothing any more.
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
