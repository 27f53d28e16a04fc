// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Step is where Slurm has put a step's processes, in one hierarchy of cgroups.
type Step struct {
	Name       string // batch, extern, interactive or its number
	Controller string // freezer; "": cgroup v2
	Folder     string // the step's, below the hierarchy's mount
	Leaf       string // the process's own: the folder, or one below it
}

// StepOf is the step in which Slurm has put a process of a job that holds slices, in the hierarchy that can freeze it: v2, or that of v1 with the
// freezer. There is none where Slurm has put the process nowhere, nor where it is of another job.
func (a Auditor) StepOf(granted []state.Slice, job uint32, pid int) (step Step, ok bool) {
	dir := filepath.Join(a.Proc, strconv.Itoa(pid))
	if is, placed := a.known(granted).ofCgroup(dir); !placed || is != job || job == 0 {
		return Step{}, false
	}
	for _, at := range cgroups(dir) {
		freezes := slices.Contains(strings.Split(at.controllers, ","), "freezer")
		if at.above || at.controllers != "" && !freezes || strings.Contains(at.leaf, "/../") {
			continue
		}
		step, ok = Step{Name: at.step, Folder: at.folder, Leaf: at.leaf}, true
		if freezes {
			step.Controller = "freezer"
			break // in a hybrid hierarchy v2 has no controllers
		}
	}
	return step, ok
}

// Process is one by its number, and by when it began, in clock ticks since boot.
type Process struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start"`
}

// StartOf is when a process began; it is the one that it was before if that is the same.
func (a Auditor) StartOf(pid int) (ticks uint64, ok bool) {
	return startOf(filepath.Join(a.Proc, strconv.Itoa(pid)))
}

// Inside is how a process is known in its own pid namespace.
type Inside struct {
	PID        int32
	PIDNS      uint64 // the namespace's inode
	StartTicks uint64
}

// OfUser are the processes of a user, by their numbers in their own pid namespaces.
func (a Auditor) OfUser(uid uint32) map[Inside]int {
	found := map[Inside]int{}
	for _, pid := range a.OfUsers(uid) {
		if inside, ok := a.InsideOf(pid); ok {
			found[inside] = pid
		}
	}
	return found
}

// OfUsers are the processes of these users.
func (a Auditor) OfUsers(uids ...uint32) (pids []int) {
	for _, pid := range a.all() {
		if of, ok := uidOf(filepath.Join(a.Proc, strconv.Itoa(pid))); ok && slices.Contains(uids, of) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ComesFrom says whether a process, or one that it comes from, is one of those.
func (a Auditor) ComesFrom(pid int, is func(pid int) bool) bool {
	for range deepest {
		if pid <= 1 || is(pid) {
			break
		}
		pid, _, _ = statOf(filepath.Join(a.Proc, strconv.Itoa(pid)))
	}
	return pid > 1
}

// InsideOf is how a process is known there.
func (a Auditor) InsideOf(pid int) (inside Inside, ok bool) {
	dir := filepath.Join(a.Proc, strconv.Itoa(pid))
	start, ok := startOf(dir)
	return Inside{innerPID(dir, pid), namespace(filepath.Join(dir, "ns", "pid")), start}, ok
}

func (a Auditor) all() (pids []int) {
	entries, err := os.ReadDir(a.Proc)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// IsStepd says that a process is Slurm's daemon of a step: root's, by its program, which is slurmstepd-wlm on Debian. Its name alone anybody can have.
func (a Auditor) IsStepd(pid int) bool {
	dir := filepath.Join(a.Proc, strconv.Itoa(pid))
	program, err := os.Readlink(filepath.Join(dir, "exe"))
	if name, _, _ := strings.Cut(filepath.Base(strings.TrimSuffix(program, " (deleted)")), "-"); err != nil || name != "slurmstepd" {
		return false
	}
	uid, ok := uidOf(dir)
	return ok && uid == 0
}

// Below are the processes of a user below the slurmstepd that one of them comes from: all that is known of a step where Slurm has no cgroups. That one is
// among them, wherever it has gone.
func (a Auditor) Below(pid int, uid uint32) (found []Process) {
	parents, starts := map[int]int{}, map[int]uint64{}
	for _, pid := range a.all() {
		if parent, start, ok := statOf(filepath.Join(a.Proc, strconv.Itoa(pid))); ok {
			parents[pid], starts[pid] = parent, start
		}
	}
	stepd := above(parents, pid, a.IsStepd)
	for other, start := range starts {
		mine := other == pid || stepd != 0 && above(parents, parents[other], func(at int) bool { return at == stepd }) != 0
		if of, ok := uidOf(filepath.Join(a.Proc, strconv.Itoa(other))); mine && ok && of == uid {
			found = append(found, Process{PID: other, StartTicks: start})
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found
}

const deepest = 1000 // parents: what was read one after another may lead in a circle

// above is the nearest, from one on, that is looked for; 0: none.
func above(parents map[int]int, pid int, is func(int) bool) int {
	for range deepest {
		if pid <= 1 {
			break
		}
		if is(pid) {
			return pid
		}
		pid = parents[pid]
	}
	return 0
}

// Hierarchies are those in which Slurm has put a process into a step, by their controllers; "" is cgroup v2.
func (a Auditor) Hierarchies(pid int) (controllers []string) {
	for _, at := range cgroups(filepath.Join(a.Proc, strconv.Itoa(pid))) {
		controllers = append(controllers, at.controllers)
	}
	return controllers
}
