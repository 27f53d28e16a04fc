// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Here reads the node: slices from the state file, processes and their groups from groups pages, and /proc to check these.
type Here struct {
	Store   state.Store
	Auditor audit.Auditor

	names  map[claim]audit.Process         // the process behind a name of another pid namespace
	owned  map[audit.Process]uint32        // the job of a process, which never changes
	swept  time.Time                       // when processes that are gone were dropped
	tries  map[uint32]tries                // to find all processes of a user
	users  map[uint32]map[audit.Inside]int // all processes of a user, as this look has found them
	missed map[claim]time.Time             // processes that were not there, and when
	later  bool                            // a process was not searched, as its job had too many searches
}

// claim is a process as its page names it.
type claim struct {
	audit.Inside
	job uint32
}

// tries bounds how often all processes of the node are read because of a page that names processes that are not there.
type tries struct {
	next time.Time
	wait time.Duration
}

var errLater = errors.New("the processes of a page are looked for in a moment")

// Look reads the node. With an error a part was not there yet; the rest counts all the same.
func (h *Here) Look() (Node, error) {
	current, err := h.Store.Read()
	if err != nil {
		return Node{}, err
	}
	var node Node
	refused, granted := h.Store.Refused(), map[uint32]uint32{}
	gpus := map[device.UUID]int{}
	places := place{}
	for i := range current.Slices {
		s := &current.Slices[i]
		index := places.of(s)
		at, known := gpus[s.Device]
		if !known {
			at = len(node.GPUs)
			gpus[s.Device] = at
			node.GPUs = append(node.GPUs, NodeGPU{GPU: GPU{UUID: s.Device, Minor: s.Minor}, Refused: slices.Contains(refused, s.Device)})
		}
		node.GPUs[at].Slices = append(node.GPUs[at].Slices, Slice{Job: s.Job, UID: s.UID, Restart: s.Restart, Place: index, SMPercent: s.SMPercent,
			Elastic: s.Elastic, Latency: s.Elastic && s.Priority == device.PriorityLatency})
		granted[s.Job] = s.UID
	}
	if len(node.GPUs) == 0 {
		return node, nil
	}
	errs := []error{h.address(node.GPUs)}
	h.users, h.later = map[uint32]map[audit.Inside]int{}, false
	for job, uid := range granted {
		processes, err := h.processes(current.Slices, job, uid)
		node.Processes = append(node.Processes, processes...)
		errs = append(errs, err)
	}
	h.forget(granted)
	if h.later {
		errs = append(errs, errLater)
	}
	return node, errors.Join(errs...)
}

// place counts the slices of a run, which stand one after another.
type place struct {
	job, index uint32
	restart    int
	begun      bool
}

func (p *place) of(s *state.Slice) int {
	if p.begun && p.job == s.Job && p.restart == s.Restart {
		p.index++
	} else {
		*p = place{job: s.Job, restart: s.Restart, begun: true}
	}
	return int(p.index)
}

// address says where the driver finds the GPUs.
func (h *Here) address(gpus []NodeGPU) error {
	inv, err := inventory.Read(h.Store.Dir.Inventory())
	if err != nil {
		return fmt.Errorf("find the node's GPUs: %w", err)
	}
	for i := range gpus {
		gpu, ok := inv.ByUUID(gpus[i].UUID)
		if !ok {
			return fmt.Errorf("find %s: the inventory has no such GPU", gpus[i].UUID)
		}
		gpus[i].Address, gpus[i].Minor = gpu.PCIBusID, gpu.Minor
	}
	return nil
}

// processes are those of a job whose groups page names them, and of which /proc says that they are the job's.
func (h *Here) processes(granted []state.Slice, job, uid uint32) (found []Process, err error) {
	if _, err := os.Lstat(h.Store.Dir.Time(job)); errors.Is(err, fs.ErrNotExist) { // the last of its pages that is made
		return nil, err
	}
	named, err := ledger.ReadGroups(h.Store.Dir.Groups(job), job)
	if errors.Is(err, ledger.ErrLayout) { // its user has spoilt it, and it stays so
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	byPID := map[audit.Process]ledger.GroupsProcess{} // a page may name one many times
	starts := map[int]uint64{}
	var pids []int // of which it is not known yet
	for _, n := range named {
		p, ok := h.find(claim{audit.Inside{PID: n.PID, PIDNS: n.PIDNS, StartTicks: n.StartTicks}, job}, uid)
		if !ok {
			continue
		}
		if _, twice := byPID[p]; !twice && h.owned[p] != job {
			starts[p.PID] = p.StartTicks
			pids = append(pids, p.PID)
		}
		byPID[p] = n
	}
	if err := h.own(granted, job, pids, starts); err != nil {
		return nil, err
	}
	for p, n := range byPID {
		if h.owned[p] == job {
			found = append(found, Process{Process: p, Job: job, UID: uid, Groups: n.Groups, More: n.More})
		}
	}
	return found, nil
}

// own finds the processes that belong to the job, by Slurm's answer. A process that does needs no second query.
func (h *Here) own(granted []state.Slice, job uint32, pids []int, starts map[int]uint64) error {
	if len(pids) == 0 {
		return nil
	}
	owners, err := h.Auditor.Owners(granted, pids)
	if err != nil {
		return err
	}
	for pid, owner := range owners {
		start, ok := h.Auditor.StartOf(pid)
		if owner == job && ok && start == starts[pid] {
			h.owned[audit.Process{PID: pid, StartTicks: start}] = job
		}
	}
	return nil
}

// find is the process that a page's entry means.
func (h *Here) find(c claim, uid uint32) (audit.Process, bool) {
	if p, known := h.names[c]; known {
		if start, ok := h.Auditor.StartOf(p.PID); ok && start == p.StartTicks {
			return p, true
		}
		delete(h.names, c)
	}
	if h.names == nil {
		h.names, h.tries, h.owned, h.missed = map[claim]audit.Process{}, map[uint32]tries{}, map[audit.Process]uint32{}, map[claim]time.Time{}
	}
	if h.users[uid] == nil {
		if !h.mayLook(c, uid) {
			return audit.Process{}, false
		}
		h.users[uid] = h.Auditor.OfUser(uid)
		t := h.tries[uid]
		t.wait = min(longestTry, max(firstTry, 2*t.wait))
		t.next = time.Now().Add(t.wait)
		h.tries[uid] = t
	}
	pid, ok := h.users[uid][c.Inside]
	if !ok {
		if len(h.missed) >= mostMissed {
			clear(h.missed)
		}
		h.missed[c] = time.Now()
		return audit.Process{}, false
	}
	delete(h.tries, uid) // the search has found it
	h.names[c] = audit.Process{PID: pid, StartTicks: c.StartTicks}
	return h.names[c], true
}

// mayLook says whether all processes of the node are read for one that a page names. A process that was not there has ended: a program that was killed stays
// on its page until another takes its place.
func (h *Here) mayLook(c claim, uid uint32) bool {
	if missed, known := h.missed[c]; known && time.Since(missed) < missedFor {
		return false
	}
	if time.Now().Before(h.tries[uid].next) {
		h.later = true
		return false
	}
	return true
}

// forget drops findings on jobs and processes that are gone.
func (h *Here) forget(granted map[uint32]uint32) {
	if time.Since(h.swept) < forgetEach {
		return
	}
	h.swept = time.Now()
	alive := map[audit.Process]bool{}
	for c, p := range h.names {
		if _, here := granted[c.job]; !here {
			delete(h.names, c)
		} else if start, ok := h.Auditor.StartOf(p.PID); !ok || start != p.StartTicks {
			delete(h.names, c)
		} else {
			alive[p] = true
		}
	}
	maps.DeleteFunc(h.missed, func(c claim, at time.Time) bool { return time.Since(at) >= missedFor || granted[c.job] == 0 })
	maps.DeleteFunc(h.owned, func(p audit.Process, _ uint32) bool { return !alive[p] })
}

// Attached says whether a process has a place in its job's ledger.
func (h *Here) Attached(p Process) bool {
	slots, err := ledger.ReadSlots(h.Store.Dir.Ledger(p.Job), p.Job, 0)
	inside, ok := h.Auditor.InsideOf(p.PID)
	return err == nil && ok && inside.StartTicks == p.StartTicks && slices.ContainsFunc(slots, func(s ledger.Slot) bool {
		return s.PID == inside.PID && (s.PIDNS == 0 || s.PIDNS == inside.PIDNS) && (s.StartTicks == 0 || s.StartTicks == inside.StartTicks)
	})
}
