// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
)

// seeHolders takes NVML's list of processes with memory of a GPU: a process whose groups are not known is judged as well.
func (k *keeper) seeHolders(g *gpu, pids map[int]uint32, orphans Orphans) {
	if pids == nil {
		return
	}
	if g.Refused {
		g.seeHoldersOfRefused(pids)
		return
	}
	var was []bool
	for _, t := range g.tenants {
		was = append(was, t.hidden)
		t.hidden = slices.ContainsFunc(t.groups, func(m *group) bool { return m.owner.refused })
	}
	before := g.untracked
	g.holders, g.untracked = map[int]bool{}, false
	for pid, job := range pids {
		k.seeHolder(g, pid, job, k.byPID(pid))
	}
	changed := false
	for _, pid := range orphans.PIDs {
		o, isNew := k.orphan(g, pid, orphans.Heirs)
		changed = changed || isNew
		if o == nil {
			g.untracked = true
		} else {
			k.seeHolder(g, pid, o.Job, o)
		}
	}
	changed = changed || g.untracked != before
	for i, t := range g.tenants {
		changed = changed || t.hidden != was[i]
	}
	if changed { // where several work the log is needed, also without names on pages
		k.settle(g)
	}
}

// seeHolder takes one process of that list.
func (k *keeper) seeHolder(g *gpu, pid int, job uint32, o *owner) {
	at := slices.IndexFunc(g.tenants, func(t *tenant) bool { return t.Job == job })
	if at < 0 {
		g.untracked = true
		return
	}
	t := g.tenants[at]
	if o == nil {
		o = k.lookUntracked(pid, t)
	}
	if o != nil {
		g.holders[pid] = true
		t.hidden = t.hidden || !t.has(o.Process.Process)
	}
}

func (k *keeper) byPID(pid int) *owner {
	for _, o := range k.owners {
		if o.PID == pid && o.heir == nil && !o.Ended() {
			return o
		}
	}
	return nil
}

// lookUntracked begins to look at a process whose page names nothing.
func (k *keeper) lookUntracked(pid int, t *tenant) *owner {
	start, ok := k.StartOf(pid)
	if !ok {
		return nil
	}
	return k.newOwner(Process{Process: audit.Process{PID: pid, StartTicks: start}, Job: t.Job, UID: t.UID})
}
