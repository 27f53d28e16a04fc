// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Job is what the controller says about a job.
type Job struct {
	ID          uint32
	ArrayJobID  uint32 // 0: not of an array
	ArrayTaskID string // a number, or several tasks as "3-9%2"
	HetJobID    uint32 // 0: not a component of a heterogeneous job
	UID         uint32
	State       string // RUNNING, COMPLETING, …
	Batch       bool
	Requeue     bool // the job may be requeued
	Restarts    int
	Submitted   time.Time     // what tells this run's row in the accounting database from others; zero: not known
	Exclusive   bool          // the job got whole nodes, with all countable GRES of them
	Ends        time.Time     // when its time limit is over; zero: it has none, or that is not known
	Limit       time.Duration // how long it may run; 0: as long as it likes, or that is not known
	Partition   string
	Account     string // "": not known
	QOS         string // "": it has none, or that is not known
	Excluded    string // host list: where it must not run
	MemTyped    bool   // its memory was typed as GRES, and goes before a share of the environment's
	HasText     bool   // slurmctld has an AdminComment or Extra of it, and be it an empty one

	required  string // host list: where it must run
	numNodes  int
	numTasks  int      // of a job whose tasks Slurm counts by the GPU; 0: it is none
	features  []string // all of which its nodes must have
	unclear   bool     // where it may run cannot be read, or is more than this
	commented bool     // its AdminComment is somebody else's

	asked    *request.Entitlement // per node; nil: the controller was not asked
	gpus     bool                 // it asked for whole GPUs
	detailed bool
	total    string // GRES on all nodes together
	nodes    []nodeGRES
}

// nodeGRES is one line of scontrol's detail: "Nodes=n[08-09] … GRES=vgpu(CNT:1),gpumem(CNT:3000)".
type nodeGRES struct{ nodes, gres string }

// Finished says that the job, in the run that has this restart count, no longer uses its nodes. A
// state that this release does not know is not finished: better a slice too long than too short.
func (j Job) Finished(restart int) bool {
	switch j.State {
	case "PENDING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
		"OUT_OF_MEMORY", "REVOKED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD":
		return true
	case "RUNNING", "STOPPED":
		return j.Restarts > restart
	}
	return false // COMPLETING as well: the processes of the run before a restart can still be there
}

// Runs says that the job has its nodes and is not being ended or requeued; CONFIGURING is what Slurm calls it until
// they are up and its prologs are done, and STOPPED when its user has sent it SIGSTOP.
func (j Job) Runs() bool { return slices.Contains(holdsNodes[:3], j.State) }

// On says that the job has this node, or that it is not known which ones it has.
func (j Job) On(node string) bool {
	return len(j.nodes) == 0 || slices.ContainsFunc(j.nodes, func(n nodeGRES) bool { return HostlistContains(n.nodes, node) })
}

// Entitlement is what Slurm allocated to the job on a node. A job with whole nodes gets all
// countable GRES of them without asking; it is entitled to what it asked for. Zero means that the
// job has nothing to do with vgpu, never that something was lost on the way.
func (j Job) Entitlement(node string) (request.Entitlement, error) {
	if !j.detailed {
		return request.Entitlement{}, ErrNoDetail
	}
	for _, n := range j.nodes {
		if !HostlistContains(n.nodes, node) {
			continue
		}
		allocated, err := request.ParseGRES(n.gres)
		if err != nil {
			return request.Entitlement{}, err
		}
		if j.Exclusive {
			return j.ofWholeNode(allocated)
		}
		total, err := request.ParseGRES(j.total)
		if err == nil && allocated.IsZero() && !total.IsZero() {
			err = fmt.Errorf("%w: nothing on node %s of %s", ErrContradiction, node, j.total)
		}
		return allocated, err
	}
	return request.Entitlement{}, fmt.Errorf("%w on node %s", ErrNoDetail, node)
}

func (j Job) ofWholeNode(allocated request.Entitlement) (request.Entitlement, error) {
	if j.asked == nil {
		return request.Entitlement{}, fmt.Errorf("%w: it has whole nodes, and what it asked for is not known", ErrNoDetail)
	}
	least := request.Entitlement{Slices: min(allocated.Slices, j.asked.Slices), MemMiB: min(allocated.MemMiB, j.asked.MemMiB),
		SMPercent: min(allocated.SMPercent, j.asked.SMPercent)}
	if least.IsZero() && !j.asked.IsZero() {
		return request.Entitlement{}, fmt.Errorf("%w: %+v was asked for and %+v allocated", ErrContradiction, *j.asked, allocated)
	}
	return least, nil
}

// WholeGPUs are the GPUs that Slurm itself gave to the job on a node, as gres/gpu, and whether it gave it any on whatever node. A
// job that asked for slices has whole nodes with all that is countable there, and no GPUs that it did not ask for.
func (j Job) WholeGPUs(node string) (here request.GPUs, any bool, err error) {
	if !j.detailed {
		return request.GPUs{}, false, ErrNoDetail
	}
	if j.asked != nil && !j.asked.IsZero() && !j.gpus {
		return request.GPUs{}, false, nil
	}
	for _, n := range j.nodes {
		gpus, err := request.ParseGPUs(n.gres)
		if err != nil {
			return request.GPUs{}, false, err
		}
		any = any || gpus.Count > 0
		if HostlistContains(n.nodes, node) {
			here = gpus
		}
	}
	return here, any, nil
}

// Shards are those that Slurm gave to the job on a node, and on whatever GPUs there.
func (j Job) Shards(node string) (request.Shards, error) {
	if !j.detailed {
		return request.Shards{}, ErrNoDetail
	}
	for _, n := range j.nodes {
		if HostlistContains(n.nodes, node) {
			return request.ParseShards(n.gres)
		}
	}
	return request.Shards{}, nil
}
