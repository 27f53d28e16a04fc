// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package sample looks at what the slices of this node use, and keeps it in the timelines of their jobs. The GPU time of slices without
// a share that neither the library meters nor vgpud counts, it estimates from the driver's samples.
package sample

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Sampler looks once.
type Sampler struct {
	Run  rundir.Dir
	Held []state.Slice // all that are granted
	// Counting says that vgpud runs: what it counts is all there was.
	Counting bool
	// Ask is put to the driver, if there is a slice without a share that vgpud does not count.
	Ask func(since map[device.UUID]uint64) (map[device.UUID]audit.Utilization, error)
	// Owners says which jobs processes are of.
	Owners func(held []state.Slice, pids []int) (map[int]uint32, error)
	Now    time.Time
	// IdleAfter is when a slice without GPU time is idle; 0: never.
	IdleAfter time.Duration
}

// Result is what a look has seen.
type Result struct {
	Jobs, Slices, Sampled int    // looked at, and of how many slices the driver was asked
	Problem               string // why GPU time may be unknown; "" also where it is the same as last time
	Idle                  []Idle
}

// Idle is a slice that has had no GPU time for a while.
type Idle struct {
	Job    uint32
	UID    uint32
	Device device.UUID
	Index  device.NVMLIndex
	For    time.Duration
	New    bool // it was not idle when it was last looked at
	Alone  bool // so are all other slices of its job on this node
}

// job is one at whose slices somebody looks.
type job struct {
	grant  grant.Grant
	file   *timeline.File
	before []timeline.Sample // zero where nobody has looked before
	looked bool
	used   []ledger.DeviceUsage // nil: its ledger cannot be believed
	counts []ledger.TimeDevice  // by vgpud
	kept   []bool               // vgpud counts the slice now
	now    []timeline.Sample    // before, brought up to date with its pages
	since  time.Duration        // the last look
}

// Look looks once, and writes down what it has seen. It goes on where it can.
func (s Sampler) Look() (Result, error) {
	var result Result
	last := readSeen(s.Run.Sample())
	jobs, problems := s.jobs()
	runs := make(map[device.UUID][]state.Run)
	for _, slice := range s.Held {
		runs[slice.Device] = append(runs[slice.Device], slice.Run())
	}
	got, next, err := s.askDriver(last, jobs, runs)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		look := s.lookAt(jobs[id], got)
		if err := jobs[id].file.Add(look); errors.Is(err, fs.ErrNotExist) { // its folder is gone, and so is the job
			continue
		} else if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		result.Jobs++
		result.Slices += len(look.Slices)
		result.Idle = append(result.Idle, s.idle(jobs[id], look)...)
	}
	for _, gpu := range got {
		result.Sampled += len(gpu)
	}
	next.Problem = strings.Join(problems, "; ")
	if next.Problem != last.Problem {
		result.Problem = next.Problem
	}
	return result, next.write(s.Run.Sample())
}

// jobs are those whose use is counted.
func (s Sampler) jobs() (all map[uint32]*job, problems []string) {
	all = make(map[uint32]*job)
	for _, slice := range s.Held {
		if all[slice.Job] != nil {
			continue
		}
		g, err := grant.Read(s.Run.Grant(slice.Job))
		if err != nil || g.Restart != slice.Restart || g.Whole || g.Refusal != "" { // it comes, or goes
			continue
		}
		j := &job{grant: g, before: make([]timeline.Sample, len(g.Slices)), since: s.Now.Sub(g.Since)}
		j.file, err = timeline.Open(s.Run.Timeline(g.Job), usage.TimelineRun(g), g.GID)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		if look, ok := j.file.Last(); ok {
			j.before, j.looked, j.since = look.Slices, true, s.Now.Sub(time.Unix(look.AtUnixS, 0))
		}
		if used, err := g.Pages().ReadDevices(s.Run.Ledger(g.Job), g.Job, g.Bounds()); err == nil && len(used) == len(g.Slices) {
			j.used = used
		}
		if err := j.readCounted(s.Run); err != nil {
			problems = append(problems, err.Error())
		}
		all[g.Job] = j
	}
	return all, problems
}

// readCounted puts together what the pages say by now. A ledger is its job's to write: it can say more, never less than before.
func (j *job) readCounted(run rundir.Dir) (err error) {
	totals := usage.Totals{Devices: j.used}
	if j.used == nil {
		totals.Devices = make([]ledger.DeviceUsage, len(j.grant.Slices))
	}
	totals.Counted, err = usage.Counts(run, j.grant, j.used)
	j.counts = totals.Counted
	j.now = make([]timeline.Sample, len(j.grant.Slices))
	j.kept = make([]bool, len(j.now))
	for i := range j.now {
		j.now[i] = totals.Latest(i, j.before[i])
		board, boardErr := ledger.ReadBoard(run.Board(j.grant.Slices[i].Device))
		j.kept[i] = boardErr == nil && board.KeptBy == ledger.KeptByVgpud && j.counts[i].LookedNs != 0
	}
	return err
}

// known is the GPU time of a slice since the last look that its pages tell of.
func (j *job) known(slice int) int64 {
	now, before := j.now[slice], j.before[slice]
	now.SampledMs, before.SampledMs = nil, nil
	return now.BusyMs() - before.BusyMs()
}

// isSeen says that vgpud sees all that the job has on a GPU. Who has memory there has a process there, which is not idle to vgpud.
func (j *job) isSeen(slice int) bool {
	flags := j.counts[slice].Flags
	return flags&ledger.TimeUnnamed == 0 && (flags&ledger.TimeIdle == 0 || j.used != nil && j.used[slice].UsedBytes == 0)
}

// isFree says that a slice has no share to keep, so that its GPU time need not be metered, and that vgpud does not count it.
func (j *job) isFree(slice int) bool {
	return j.grant.Slices[slice].SMPercent%100 == 0 && !j.kept[slice]
}

// askDriver says how much GPU time free slices have had, by GPU and job, that is not in their ledgers. Nothing is said of a GPU that the
// driver does not tell of.
func (s Sampler) askDriver(last seen, jobs map[uint32]*job, runs map[device.UUID][]state.Run) (map[device.UUID]map[uint32]had, seen, error) {
	next := seen{AtUnixMs: s.Now.UnixMilli(), GPUs: make(map[device.UUID]seenGPU, len(runs))}
	free := make(map[device.UUID][]uint32)
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		for i, slice := range jobs[id].grant.Slices {
			if jobs[id].isFree(i) {
				free[slice.Device] = append(free[slice.Device], id)
			}
		}
	}
	ask := make(map[device.UUID]uint64, len(free))
	for uuid, here := range runs {
		next.GPUs[uuid] = seenGPU{LastUs: last.GPUs[uuid].LastUs, Runs: here}
		if len(free[uuid]) > 0 {
			ask[uuid] = last.from(uuid, s.Now)
		}
	}
	if len(ask) == 0 {
		return nil, next, nil
	}
	told, err := s.Ask(ask)
	if err != nil {
		return nil, next, err
	}
	used, pids := make(map[device.UUID]map[int]float64, len(ask)), []int(nil)
	for uuid, since := range ask {
		answer, here := told[uuid], next.GPUs[uuid]
		if answer.Err != nil {
			err = answer.Err
			continue
		}
		whole := here.LastUs == since
		used[uuid], here.LastUs = weigh(answer, since, whole)
		pids = slices.AppendSeq(pids, maps.Keys(used[uuid]))
		next.GPUs[uuid] = here
	}
	owners, unseen := s.Owners(s.Held, pids)
	if unseen != nil {
		return nil, next, unseen
	}
	got := make(map[device.UUID]map[uint32]had, len(used))
	for uuid := range used {
		of := s.interval(last, jobs, uuid, used[uuid], owners)
		of.free, of.whole = free[uuid], of.whole && last.stayed(uuid, runs[uuid])
		got[uuid] = of.sampled()
	}
	return got, next, err
}

// interval puts together what is known of one GPU since the last look.
func (s Sampler) interval(last seen, jobs map[uint32]*job, uuid device.UUID, used map[int]float64, owners map[int]uint32) interval {
	ago, looked := last.since(s.Now)
	of := interval{used: make(map[uint32]float64), metered: make(map[uint32]float64), whole: looked}
	for _, pid := range slices.Sorted(maps.Keys(used)) {
		if j := jobs[owners[pid]]; j != nil && j.slice(uuid) >= 0 {
			of.used[owners[pid]] += used[pid]
		} else {
			of.others += used[pid]
		}
	}
	for id, j := range jobs {
		slice := j.slice(uuid)
		if slice < 0 {
			continue
		}
		// Nobody has looked at it, and it was there: when it had what is metered is not known.
		if !j.looked && j.since > ago {
			of.whole = false
			continue
		}
		of.metered[id] = float64(j.known(slice))
		if ago > remembered { // the samples are of a part of the time
			of.metered[id] *= remembered.Seconds() / ago.Seconds()
		}
	}
	return of
}

// slice is the place of a GPU among the job's slices; -1: it has none there.
func (j *job) slice(uuid device.UUID) int {
	return slices.IndexFunc(j.grant.Slices, func(s device.Slice) bool { return s.Device == uuid })
}

// lookAt is what is known of a job by now.
func (s Sampler) lookAt(j *job, got map[device.UUID]map[uint32]had) timeline.Look {
	look := timeline.Look{AtUnixS: s.Now.Unix()}
	for i, slice := range j.grant.Slices {
		before := j.before[i]
		now := j.now[i]
		now.IdleS = 0
		if j.used != nil {
			now.UsedMiB = usage.MiB(j.used[i].UsedBytes)
		}
		known := j.used != nil
		switch {
		case j.kept[i]:
			known = s.Counting && j.looked && now.UnknownMs == before.UnknownMs && j.isSeen(i)
		case j.isFree(i):
			had, told := got[slice.Device][j.grant.Job]
			if told {
				sum := int64(math.Round(min(had.ms, max(0, float64(j.since.Milliseconds())))))
				if before.SampledMs != nil {
					sum += *before.SampledMs
				}
				now.SampledMs = &sum
			}
			known = known && told && !had.isBusy && j.looked && j.since <= remembered
		}
		if known && now.BusyMs() == before.BusyMs() {
			now.IdleS = before.IdleS + int64(j.since/time.Second)
			now.LongestIdleS = max(now.LongestIdleS, now.IdleS)
		}
		look.Slices = append(look.Slices, now)
	}
	return look
}

// idle are the slices of a job that are idle by now.
func (s Sampler) idle(j *job, look timeline.Look) (found []Idle) {
	if s.IdleAfter == 0 {
		return nil
	}
	for i, slice := range j.grant.Slices {
		for_, before := time.Duration(look.Slices[i].IdleS)*time.Second, time.Duration(j.before[i].IdleS)*time.Second
		if for_ >= s.IdleAfter {
			found = append(found, Idle{Job: j.grant.Job, UID: j.grant.UID, Device: slice.Device, Index: slice.Index, For: for_, New: before < s.IdleAfter})
		}
	}
	for i := range found {
		found[i].Alone = len(found) == len(j.grant.Slices)
	}
	return found
}

// String is what `vgpuctl sample` prints.
func (r Result) String() string {
	return fmt.Sprintf("looked at %d slices of %d jobs, the driver was asked about %d", r.Slices, r.Jobs, r.Sampled)
}
