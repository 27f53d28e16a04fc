// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/queue"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// looker is one look at the node, which reads each file once and takes no lock.
type looker struct {
	cfg     config.Config
	now     time.Time
	timeNow time.Duration // the same, by the clock of time pages
	steps   bool          // ask for the steps that run as well
	grants  map[uint32]grant.Grant
	used    map[uint32]usedOf
}

// usedOf is what a job used; nothing where that cannot be read.
type usedOf struct {
	totals usage.Totals
	steps  []ledger.StepUsage
}

// The sources that a look reads, in words of `vgpuctl metrics`.
const (
	fromState     = "state"
	fromInventory = "inventory"
	fromWaiting   = "waiting"
	fromDriver    = "driver"
	fromCounts    = "counts"
	fromRecords   = "records"
	fromConfig    = "config"
)

func readStatus(cfg config.Config, node string, now time.Time) (nodeStatus, error) {
	return (&looker{cfg: cfg, now: now}).at(node)
}

// at looks at the node. Where the state cannot be read there is an error as well, and what is known besides.
func (l *looker) at(node string) (nodeStatus, error) {
	status := nodeStatus{Node: node, GPUs: []gpuStatus{}, Slices: []sliceStatus{}, Waiting: []waitingStatus{}, unreadable: map[string]bool{}}
	boot, err := inventory.BootID()
	if err != nil {
		return status, err
	}
	store := state.Of(l.cfg, boot, hclog.NewNullLogger())
	current, stateErr := store.Read()
	status.unreadable[fromState] = stateErr != nil
	inv, err := inventory.Read(l.cfg.Run().Inventory())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		status.Problem = "there is no inventory yet: the first vgpu-prolog, or `vgpu-gres inventory --write`, makes it"
	case err != nil:
		status.Problem = err.Error()
	case inv.BootID != boot:
		status.Problem = "the inventory is of an earlier boot: `vgpu-gres inventory --write` makes a new one"
	}
	status.unreadable[fromInventory] = status.Problem != ""
	for _, gpu := range inv.GPUs {
		status.GPUs = append(status.GPUs, statusOf(l.cfg, gpu, current.Slices))
	}
	status.addKeepers(l.cfg.Run(), store.Refused())
	driver := l.startDriver(inv.GPUs, current.Slices)
	l.timeNow = ledger.TimeNow()
	l.grants, l.used = make(map[uint32]grant.Grant), make(map[uint32]usedOf)
	for _, s := range current.Slices {
		status.Slices = append(status.Slices, l.sliceOf(s))
	}
	if status.Waiting, err = waitingOf(l.cfg, l.now); err != nil {
		status.unreadable[fromWaiting] = true
		if !errors.Is(err, fs.ErrPermission) { // root's alone, and to another user it says nothing that he could mend
			status.Problem = err.Error()
		}
	}
	l.addDriver(&status, current.Slices, <-driver)
	slices.SortStableFunc(status.Slices, func(a, b sliceStatus) int {
		if a.Index != b.Index {
			return int(a.Index - b.Index)
		}
		return int(int64(a.Job) - int64(b.Job))
	})
	return status, stateErr
}

// driverAnswer is who holds memory of the GPUs; asked says that there was something to ask.
type driverAnswer struct {
	asked   bool
	holders map[device.UUID]discover.Holders
	err     error
}

// startDriver asks NVML, which takes its time to start, while the ledgers are read.
func (l *looker) startDriver(gpus []device.GPU, held []state.Slice) <-chan driverAnswer {
	answer := make(chan driverAnswer, 1)
	uuids := askable(gpus, held, os.Geteuid())
	if len(uuids) == 0 {
		answer <- driverAnswer{}
		return answer
	}
	go func() {
		holders, err := askDriver(l.cfg, uuids)
		answer <- driverAnswer{true, holders, err}
	}()
	return answer
}

func statusOf(cfg config.Config, gpu device.GPU, granted []state.Slice) gpuStatus {
	g := gpuStatus{GPU: gpu, MaxSlices: cfg.SlicesPerGPU, State: "ok"}
	exclusive := false
	for _, s := range granted {
		if s.Device == gpu.UUID {
			g.Slices++
			g.GrantedMiB += s.MemMiB
			g.GrantedPercent += s.SMPercent
			exclusive = exclusive || s.SMPercent == 100
		}
	}
	g.FreeMiB = max(int64(math.Floor(float64(gpu.MemMiB)*cfg.MemOvercommit))-g.GrantedMiB, 0)
	switch {
	case gpu.Lost == inventory.SlurmsOwn:
		g.State, g.FreeMiB = stateSlurms, 0
	case gpu.Lost != "":
		g.State, g.FreeMiB = "lost", 0
	case cfg.Drains(gpu):
		g.State, g.FreeMiB = "draining", 0
	case exclusive:
		g.State, g.FreeMiB = "exclusive", 0
	}
	return g
}

// sliceOf adds what the job's ledger says.
func (l *looker) sliceOf(s state.Slice) sliceStatus {
	status := sliceStatus{
		Job: s.Job, Restart: s.Restart, UID: s.UID, User: userName(s.UID), Device: s.Device, Index: s.Index,
		MemMiB: s.MemMiB, SMPercent: s.SMPercent, Priority: s.Priority, Since: s.Since.Time(), AgeSeconds: int64(l.now.Sub(s.Since.Time()) / time.Second),
	}
	g, known := l.grantOf(s.Job)
	if !known {
		return status
	}
	status.grant = &g
	used := l.usedBy(g)
	for i, slice := range g.Slices {
		if slice.Device == s.Device && i < len(used.totals.Devices) {
			d := used.totals.Devices[i]
			status.UsedMiB, status.Figures = used.totals.Slice(i)
			status.shareStatus = shareOf(status.Time, l.now.Sub(s.Since.Time()))
			status.Counted = countedOf(used.totals.Counted[i], hasProgram(l.cfg.Run(), g, i, used.totals, l.timeNow), l.timeNow)
			status.steps, status.place = used.steps, i
			if used.totals.Spoiled == nil {
				status.use = &d
			}
		}
	}
	return status
}

func (l *looker) grantOf(job uint32) (g grant.Grant, known bool) {
	if g, known = l.grants[job]; known {
		return g, true
	}
	g, err := grant.Read(l.cfg.Run().Grant(job))
	if err == nil {
		l.grants[job] = g
	}
	return g, err == nil
}

// usedBy keeps what was read of a job with several slices.
func (l *looker) usedBy(g grant.Grant) usedOf {
	used, done := l.used[g.Job]
	if done {
		return used
	}
	if totals, err := usage.Collect(l.cfg.Run(), g); err == nil {
		used.totals = totals
	}
	if l.steps {
		if page, err := ledger.Read(l.cfg.Run().Ledger(g.Job), g.Job, g.Bounds()); err == nil {
			used.steps = page.Steps
		}
	}
	l.used[g.Job] = used
	return used
}

func waitingOf(cfg config.Config, now time.Time) (all []waitingStatus, err error) {
	var jobs queue.Jobs
	if !cfg.Shards { // else a list is from before, and none of it waits here
		jobs, err = queue.Read(cfg.Spool())
	}
	all = make([]waitingStatus, 0, len(jobs))
	for _, j := range jobs.Waiting() {
		all = append(all, waitingStatus{Job: j.Job, UID: j.UID, User: userName(j.UID), Since: j.Since, AgeSeconds: int64(now.Sub(j.Since).Seconds()),
			Reason: slurm.Printable(j.Reason), Told: j.Told})
	}
	return all, err
}
