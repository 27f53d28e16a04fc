// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package audit says what processes hold of each GPU by the driver's word, holds it against what the
// ledgers say, and finds use that no ledger accounts for.
package audit

import (
	"fmt"
	"os"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Auditor looks at the node's processes.
type Auditor struct {
	Run  rundir.Dir
	Proc string // "/proc"
	// Every process of the node is seen and has its own pid: who asks is in the first pid namespace.
	WholeNode bool
	UID       int // who asks; 0 may know of everybody
	// Grant reads a job's grant; nil: from the run directory.
	Grant func(job uint32) (g grant.Grant, known bool)
}

// Here is the auditor for the process that asks.
func Here(run rundir.Dir) Auditor {
	// PROC_PID_INIT_INO of the kernel: the inode of the first pid namespace, on every node.
	const firstNamespace = "pid:[4026531836]"
	namespace, err := os.Readlink("/proc/self/ns/pid")
	return Auditor{Run: run, Proc: "/proc", WholeNode: err == nil && namespace == firstNamespace, UID: os.Geteuid()}
}

// Total is what some processes hold together.
type Total struct {
	Bytes     uint64
	Processes int
	Unknown   string // why the sum is not known; "" when it is
}

func (t *Total) add(held discover.Held) {
	t.Processes++
	t.Bytes += held.Bytes
	if !held.Known && t.Unknown == "" {
		t.Unknown = fmt.Sprintf("the driver does not say what process %d holds", held.PID)
	}
}

// Stranger is a process that holds memory of a GPU without a slice of it.
type Stranger struct {
	PID   int
	UID   uint32
	Bytes uint64
	Known bool // false: the driver does not say how much
}

// Slice names one job's slice of one GPU.
type Slice struct {
	Job    uint32
	Device device.UUID
}

// Result is what the driver says. Only the slices that who asks may know of are in it.
type Result struct {
	Slices map[Slice]Total
	Others map[device.UUID]Total // held by processes of no slice; only root is told
	// Strangers are these processes.
	Strangers map[device.UUID][]Stranger
}

// Totals gives the driver's lists to the slices.
func (a Auditor) Totals(granted []state.Slice, holders map[device.UUID]discover.Holders) Result {
	result := Result{Slices: map[Slice]Total{}, Others: map[device.UUID]Total{}, Strangers: map[device.UUID][]Stranger{}}
	owner := a.owners(a.known(granted))
	for uuid, found := range holders {
		held, others := a.split(found, owner)
		for _, s := range granted {
			if s.Device != uuid || !a.mayKnow(s.UID) {
				continue
			}
			total := held[s.Job]
			if total.Unknown == "" {
				total.Unknown = others.Unknown
			}
			result.Slices[Slice{s.Job, uuid}] = total
			delete(held, s.Job)
		}
		for _, strayed := range held { // on a GPU that their job has no slice of
			others.Bytes += strayed.Bytes
			others.Processes += strayed.Processes
		}
		if a.UID == 0 {
			result.Others[uuid] = others
			result.Strangers[uuid] = strangers(found, owner, granted, uuid)
		}
	}
	return result
}

// known are the jobs that hold slices.
func (a Auditor) known(granted []state.Slice) known {
	jobs := known{make(map[uint32]uint32), make(map[string]uint32), make(map[uint32]bool)}
	for _, s := range granted {
		if _, seen := jobs.uids[s.Job]; seen {
			continue
		}
		jobs.uids[s.Job] = s.UID
		if g, known := a.grant(s.Job); known && g.SLUID != "" {
			jobs.sluids[g.SLUID] = s.Job
		}
	}
	return jobs
}

func (a Auditor) grant(job uint32) (g grant.Grant, known bool) {
	if a.Grant != nil {
		return a.Grant(job)
	}
	g, err := grant.Read(a.Run.Grant(job))
	return g, err == nil
}

// belongs is whose a process is.
type belongs struct {
	job, uid uint32
	is       owner
}

// owners asks about each process once, on however many GPUs it is.
func (a Auditor) owners(jobs known) func(pid int) belongs {
	asked := make(map[int]belongs)
	return func(pid int) belongs {
		of, done := asked[pid]
		if !done {
			of.job, of.uid, of.is = a.jobOf(pid, jobs)
			asked[pid] = of
		}
		return of
	}
}

// strangers are the processes of a GPU that are of no job with a slice of it.
func strangers(found discover.Holders, owner func(pid int) belongs, held []state.Slice, uuid device.UUID) (strangers []Stranger) {
	for _, process := range found.Processes {
		of := owner(process.PID)
		isHere := func(s state.Slice) bool { return s.Job == of.job && s.Device == uuid }
		if of.is == ofNobody || (of.is == ofJob && !slices.ContainsFunc(held, isHere)) {
			strangers = append(strangers, Stranger{PID: process.PID, UID: of.uid, Bytes: process.Bytes, Known: process.Known})
		}
	}
	return strangers
}

func (a Auditor) mayKnow(uid uint32) bool { return a.UID == 0 || a.UID == int(uid) }

// split sums up one GPU by job. What makes it impossible to say whose a process is, is in others.Unknown.
func (a Auditor) split(found discover.Holders, owner func(pid int) belongs) (totals map[uint32]Total, others Total) {
	totals = make(map[uint32]Total)
	if found.Err != nil {
		others.Unknown = found.Err.Error()
	}
	for _, held := range found.Processes {
		of := owner(held.PID)
		switch {
		case of.is == ofJob:
			total := totals[of.job]
			total.add(held)
			totals[of.job] = total
		case of.is == ofNobody:
			others.add(held)
		case !a.WholeNode && others.Unknown == "":
			others.Unknown = fmt.Sprintf("the driver names process %d, which is not in this pid namespace", held.PID)
		}
	}
	if !a.WholeNode && others.Unknown == "" && len(found.Processes) == 0 {
		others.Unknown = "the driver names no process in this pid namespace"
	}
	return totals, others
}
