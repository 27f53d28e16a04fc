// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package audit says what the processes of each job hold of each GPU by the driver's word, so that
// it can be held against what the ledgers say.
package audit

import (
	"fmt"
	"os"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
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

// Slice names one job's slice of one GPU.
type Slice struct {
	Job    uint32
	Device device.UUID
}

// Result is what the driver says. Only the slices that who asks may know of are in it.
type Result struct {
	Slices map[Slice]Total
	Others map[device.UUID]Total // held by processes of no slice; only root is told
}

// Totals gives the driver's lists to the slices.
func (a Auditor) Totals(slices []state.Slice, holders map[device.UUID]discover.Holders) Result {
	result := Result{Slices: map[Slice]Total{}, Others: map[device.UUID]Total{}}
	uids := make(map[uint32]uint32)
	for _, s := range slices {
		uids[s.Job] = s.UID
	}
	for uuid, found := range holders {
		jobs, others := a.split(found, uids)
		for _, s := range slices {
			if s.Device != uuid || !a.mayKnow(s.UID) {
				continue
			}
			total := jobs[s.Job]
			if total.Unknown == "" {
				total.Unknown = others.Unknown
			}
			result.Slices[Slice{s.Job, uuid}] = total
			delete(jobs, s.Job)
		}
		for _, strayed := range jobs { // on a GPU that their job has no slice of
			others.Bytes += strayed.Bytes
			others.Processes += strayed.Processes
		}
		if a.UID == 0 {
			result.Others[uuid] = others
		}
	}
	return result
}

func (a Auditor) mayKnow(uid uint32) bool { return a.UID == 0 || a.UID == int(uid) }

// split sums up one GPU by job. What makes it impossible to say whose a process is, is in others.Unknown.
func (a Auditor) split(found discover.Holders, uids map[uint32]uint32) (jobs map[uint32]Total, others Total) {
	jobs = make(map[uint32]Total)
	if found.Err != nil {
		others.Unknown = found.Err.Error()
	}
	for _, held := range found.Processes {
		job, is := a.jobOf(held.PID, uids)
		switch {
		case is == ofJob:
			total := jobs[job]
			total.add(held)
			jobs[job] = total
		case is == ofNobody:
			others.add(held)
		case !a.WholeNode && others.Unknown == "":
			others.Unknown = fmt.Sprintf("the driver names process %d, which is not in this pid namespace", held.PID)
		}
	}
	if !a.WholeNode && others.Unknown == "" && len(found.Processes) == 0 {
		others.Unknown = "the driver names no process in this pid namespace"
	}
	return jobs, others
}
