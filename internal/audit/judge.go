// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// sum is what the processes of a job hold together.
type sum struct {
	bytes uint64
	count uint64
	uid   uint32
	told  uint64 // what the driver says of the job itself, whatever processes it lists
}

// judge finds the strays among the processes of one GPU.
func (s *sight) judge(gpu device.GPU, processes map[int]discover.Held) {
	jobs := s.known()
	sums := map[uint32]sum{}
	for _, pid := range slices.Sorted(maps.Keys(processes)) {
		held := processes[pid]
		p, ok := s.watcher.look(pid, jobs)
		if !ok {
			if !s.watcher.WholeNode {
				s.bad[fmt.Sprintf("the driver names process %d, which is not in this pid namespace", pid)] = true
			}
			continue
		}
		if p.start >= s.began { // who had the memory is gone, and this one has its pid
			continue
		}
		if s.watcher.Ignore[p.uid] && !p.foreign {
			continue
		}
		stray := Stray{Device: gpu.UUID, Index: gpu.Index, PID: pid, Name: p.name, UID: p.uid, Job: p.job, start: p.start}
		if held.Known {
			stray.hold(held.Bytes)
		}
		if s.strays(&stray, p, held) {
			s.found = append(s.found, stray)
		}
		if held.Known && p.job != 0 {
			of := sums[p.job]
			sums[p.job] = sum{bytes: of.bytes + held.Bytes, count: of.count + 1, uid: jobs.uids[p.job]}
		}
	}
	s.takeTold(gpu.UUID, jobs, sums)
	for _, job := range slices.Sorted(maps.Keys(sums)) {
		s.judgeJob(gpu, job, sums[job])
	}
}

// strays says what is wrong with one process on one GPU, if something is.
func (s *sight) strays(stray *Stray, p process, held discover.Held) bool {
	isHere := func(s state.Slice) bool { return s.Job == p.job && s.Device == stray.Device }
	switch {
	case p.job == 0 && !p.placed:
		stray.Kind = NoJob
		return true
	case !slices.ContainsFunc(s.held, isHere):
		stray.Kind = NoSlice
		return true
	}
	of := s.jobs[p.job]
	slice, granted := of.slice(stray.Device)
	if !granted || of.grant.Whole || !of.read { // nothing is counted, or nothing can be said
		return false
	}
	bytes, known := of.of(p, slice)
	stray.AccountedMiB = usage.MiB(bytes)
	switch {
	case !known:
		stray.Kind = NotInLedger
		return true
	case held.Known && held.Bytes > tolerance && held.Bytes-tolerance > bytes:
		stray.Kind = Unaccounted
		return true
	}
	return false
}

// takeTold puts the driver's own figure of a job beside the sum: it knows of memory that no process in its lists has.
func (s *sight) takeTold(gpu device.UUID, jobs known, sums map[uint32]sum) {
	for of, bytes := range s.told {
		if has := sums[of.Job]; of.Device == gpu {
			sums[of.Job] = sum{has.bytes, max(has.count, 1), jobs.uids[of.Job], bytes}
		}
	}
}

// judgeJob goes by the grant, which root wrote: whatever the ledger says.
func (s *sight) judgeJob(gpu device.GPU, job uint32, held sum) {
	of := s.jobs[job]
	if of == nil || of.grant.Whole {
		return
	}
	slice, granted := of.slice(gpu.UUID)
	if !granted {
		return
	}
	limit, kind := of.grant.Bounds().Bytes[slice], OverLimit
	if max(held.bytes, held.told) <= limit+held.count*tolerance {
		accounted, processes := of.all(slice)
		// The memory of the listed processes is judged by now.
		if !of.read || held.told <= max(accounted, held.bytes)+(max(held.count, processes)+1)*tolerance {
			return
		}
		limit, kind = accounted, Unaccounted
	}
	stray := Stray{Kind: kind, Device: gpu.UUID, Index: gpu.Index, UID: held.uid, Job: job, AccountedMiB: usage.MiB(limit)}
	stray.hold(max(held.bytes, held.told))
	s.found = append(s.found, stray)
}

// known is who Slurm's cgroups may name: jobs with a slice, and runs that have a folder here.
func (s *sight) known() known {
	all := s.watcher.known(s.held)
	entries, err := os.ReadDir(s.watcher.Run.Jobs())
	if err != nil {
		return all // they are then of runs that nobody knows
	}
	for _, entry := range entries {
		job, isJob := number(entry.Name())
		if _, held := all.uids[job]; !isJob || held {
			continue
		}
		if g, err := grant.Read(s.watcher.Run.Grant(job)); err == nil && g.SLUID != "" {
			all.sluids[g.SLUID] = job
		}
	}
	return all
}

// Users are the ids of these names and numbers. A user who is not known on this node has no processes here.
func Users(names []string, lookup func(string) (string, error)) map[uint32]bool {
	uids := make(map[uint32]bool)
	for _, name := range names {
		text := name
		if found, err := lookup(name); err == nil {
			text = found
		}
		if uid, err := strconv.ParseUint(text, 10, 32); err == nil {
			uids[uint32(uid)] = true
		}
	}
	return uids
}
