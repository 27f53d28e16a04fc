// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package rundir names every file below the run and spool directories. It touches none of them.
package rundir

import (
	"path/filepath"
	"strconv"
)

// Default directories; config.yaml and the plugstack line may name others.
const (
	Default      = "/run/slurm-vgpu"
	DefaultSpool = "/var/spool/slurm-vgpu"
	// Self is where a task under strict isolation finds its step's folder, in its own mount namespace.
	// interposer/api/layout.h has the same path.
	Self = "/run/slurm-vgpu/self"
	// PagesFolder is the name of the folder of jobs' pages in a run directory, and of the job's in an isolated step's folder.
	PagesFolder = "pages"
)

// Dir is a run directory.
type Dir string

func (d Dir) State() string { return filepath.Join(string(d), "state.json") }

// Lock is the state's. It guards all that prologs and epilogs write, for milliseconds: no program holds it during a query to the driver or to Slurm.
func (d Dir) Lock() string { return filepath.Join(string(d), "state.lock") }

// DriverLock is held over such questions that only one may ask at a time, which can take seconds: to find the node's GPUs, and to set limits
// or take them away.
func (d Dir) DriverLock() string { return filepath.Join(string(d), "driver.lock") }

func (d Dir) Inventory() string { return filepath.Join(string(d), "inventory.json") }

// PassLock is held by a sweep, which may ask slurmctld for minutes; its time is that of the last sweep.
func (d Dir) PassLock() string { return filepath.Join(string(d), "pass.lock") }

// Audited has the time of the last audit.
func (d Dir) Audited() string { return filepath.Join(string(d), "audited") }

// VgpudLock is held by vgpud for as long as it runs, so that there is one; VgpudOff is what it holds programs by at the moment, so that whoever comes after it
// can undo it.
func (d Dir) VgpudLock() string { return filepath.Join(string(d), "vgpud.lock") }
func (d Dir) VgpudOff() string  { return filepath.Join(string(d), "vgpud.off") }

// VgpudRefused are the GPUs on which the driver refuses vgpud its calls: the library holds the caps there.
func (d Dir) VgpudRefused() string { return filepath.Join(string(d), "vgpud.refused") }

// VgpudFailed is there while a command that vgpud runs from time to time fails; its time is that of the first failure.
func (d Dir) VgpudFailed(command string) string {
	return filepath.Join(string(d), "vgpud.failed."+command)
}

// Counts are what prologs did since boot, for monitoring; a program adds to them only under the state's lock.
func (d Dir) Counts() string { return filepath.Join(string(d), "counts.json") }

// Prolog is the command line of vgpu-prolog, which leaves it there.
func (d Dir) Prolog() string { return filepath.Join(string(d), "prolog.json") }
func (d Dir) Jobs() string   { return filepath.Join(string(d), "jobs") }

// Builds is the folder of what builds of slurm-vgpu load into jobs, a folder for each that a job was started with (package builds).
func (d Dir) Builds() string { return filepath.Join(string(d), "builds") }

// Job is the folder of a job that has, or was refused, slices here.
func (d Dir) Job(job uint32) string {
	return filepath.Join(d.Jobs(), strconv.FormatUint(uint64(job), 10))
}

// None is an empty file that vgpu-prolog leaves for a job without vgpu, so that the plugin can
// tell such a job from one whose prolog has not run yet (Slurm 22.05 starts steps early).
func (d Dir) None(job uint32) string { return d.Job(job) + ".none" }

// Pending is an empty file that stands while vgpu-prolog works on the job: a step that comes early
// waits longer for a prolog that has begun.
func (d Dir) Pending(job uint32) string { return d.Job(job) + ".pending" }
func (d Dir) Grant(job uint32) string   { return filepath.Join(d.Job(job), "grant.json") }

// Notice is what the plugin puts into slurmd's log. spank/hooks.c has the same name.
func (d Dir) Notice() string { return filepath.Join(string(d), "notice") }

// AllPages is the folder of all jobs' pages.
func (d Dir) AllPages() string { return filepath.Join(string(d), PagesFolder) }

// Pages is the folder of what a job's user owns, a small file system of its own (package pages).
func (d Dir) Pages(job uint32) string {
	return filepath.Join(d.AllPages(), strconv.FormatUint(uint64(job), 10))
}

// Groups are what the job's processes have the driver schedule; the job's user owns and writes them.
func (d Dir) Groups(job uint32) string { return filepath.Join(d.Pages(job), "groups") }

// Time is what the job used of its GPUs, as vgpud counted it; root writes it.
func (d Dir) Time(job uint32) string { return filepath.Join(d.Pages(job), "time") }

// Ledger is the job's usage page; the job's user owns and writes it.
func (d Dir) Ledger(job uint32) string { return filepath.Join(d.Pages(job), "ledger") }

// Walls is where the driver holds jobs to their memory. A wall's file outlives its job's folder: what it says has to be taken away.
func (d Dir) Walls() string { return filepath.Join(string(d), "walls") }
func (d Dir) Wall(job uint32) string {
	return filepath.Join(d.Walls(), strconv.FormatUint(uint64(job), 10)+".json")
}

// Usage is where the SPANK plugin folds in what finished steps used.
func (d Dir) Usage(job uint32) string { return filepath.Join(d.Job(job), "usage.json") }

// StepsLock is of one job, and not the state's: its steps begin and end by the hundred, and a slurmstepd that is stuck in between holds up no other job.
func (d Dir) StepsLock(job uint32) string { return d.Usage(job) + ".lock" }

// Timeline is the use of a job's slices over time; the sampler writes it.
func (d Dir) Timeline(job uint32) string { return filepath.Join(d.Job(job), "timeline.jsonl") }

// Step is a step's folder: limits, ledger (a link to the job's) and ld.so.preload.
func (d Dir) Step(job uint32, step string) string { return filepath.Join(d.Job(job), "steps", step) }

// StepName is how Slurm prints a step id: batch, extern, interactive or its number.
func StepName(step uint32) string {
	switch step { // slurm.h: SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT, SLURM_INTERACTIVE_STEP
	case 0xfffffffb:
		return "batch"
	case 0xfffffffc:
		return "extern"
	case 0xfffffffa:
		return "interactive"
	}
	return strconv.FormatUint(uint64(step), 10)
}

// StepDevices is the folder, beside the GPUs' device files, of those that steps are given instead where the others are
// closed. It is there and not in the run directory because /run is mounted without devices.
func StepDevices(deviceDir string) string { return filepath.Join(deviceDir, "slurm-vgpu-gpus") }

// Spool is where usage records wait until they stand in the accounting database.
type Spool string

func (s Spool) Usage() string   { return filepath.Join(string(s), "usage") }
func (s Spool) History() string { return filepath.Join(string(s), "history") }

// Lock is held by the one that carries the records to the database: that can take minutes, so that it is not the state's.
func (s Spool) Lock() string { return filepath.Join(s.Usage(), ".lock") }

// Backfill is for records whose rows slurmctld may write over.
func (s Spool) Backfill() string { return filepath.Join(string(s), "backfill") }

// Drained says why this node took itself out of Slurm's hands, where it did.
func (s Spool) Drained() string { return filepath.Join(string(s), "drained.json") }

// Waiting is the list of jobs that wait for room on this node.
func (s Spool) Waiting() string { return filepath.Join(string(s), "waiting.json") }
