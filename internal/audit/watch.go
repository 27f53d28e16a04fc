// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Pace is how often a watcher looks. A program at work allocates and frees, starts and ends between any two
// questions, so what counts is what every sample of both looks has seen.
type Pace struct {
	Samples int           // of one look
	Pause   time.Duration // between them
	Apart   time.Duration // from one look to the next
}

// Usual is the pace without options.
var Usual = Pace{Samples: 4, Pause: 20 * time.Millisecond, Apart: 3 * time.Second}

// Watcher looks for strays.
type Watcher struct {
	Auditor
	Pace
	GPUs   []device.GPU
	Ignore map[uint32]bool // users whose processes are not looked at, in the node's own pid namespace
	Held   func() ([]state.Slice, error)
	Ask    func([]device.UUID) (map[device.UUID]discover.Holders, error)
	// Told is what the driver says of a job's cgroup, where it has a limit of the driver's own. nil: nowhere.
	Told func(Slice) (bytes uint64, ok bool)
}

// Found is what a watcher found, and why it may not be all.
type Found struct {
	Strays   []Stray
	Problems []string
}

// Find looks twice. Most often the first look finds nothing, and is the only one.
func (w Watcher) Find(ctx context.Context) (Found, error) {
	first, err := w.once(ctx)
	if err != nil || len(first.Strays) == 0 {
		return first, err
	}
	if err := pause(ctx, w.Apart); err != nil {
		return Found{}, err
	}
	second, err := w.once(ctx)
	if err != nil {
		return Found{}, err
	}
	before := make(map[key]bool, len(first.Strays))
	for _, s := range first.Strays {
		before[s.key()] = true
	}
	second.Strays = slices.DeleteFunc(second.Strays, func(s Stray) bool { return !before[s.key()] })
	return second, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("look for stray use: %w", ctx.Err())
	case <-time.After(d):
		return nil
	}
}

// sight is what the samples of one look have in common.
type sight struct {
	watcher Watcher
	held    []state.Slice
	jobs    map[uint32]*account
	least   map[device.UUID]map[int]discover.Held // in every sample: the least that the driver said
	told    map[Slice]uint64                      // likewise, of jobs
	bad     map[string]bool
	found   []Stray
	began   uint64 // in ticks
}

func (w Watcher) once(ctx context.Context) (Found, error) {
	s := sight{watcher: w, jobs: map[uint32]*account{}, least: map[device.UUID]map[int]discover.Held{}, bad: map[string]bool{}, began: ticks()}
	var uuids []device.UUID
	for _, gpu := range w.GPUs {
		if gpu.Lost == "" { // of others there are no slices
			uuids = append(uuids, gpu.UUID)
		}
	}
	for n := range w.Samples {
		if n > 0 {
			if err := pause(ctx, w.Pause); err != nil {
				return Found{}, err
			}
		}
		if err := s.readLedgers(); err != nil {
			return Found{}, err
		}
		holders, err := w.Ask(uuids)
		if err != nil {
			return Found{}, err
		}
		for uuid, now := range holders {
			s.sample(uuid, now, n == 0)
		}
		s.tell(n == 0)
	}
	// After the driver's lists: who started before them has a slice by now, and who has lost it is gone.
	if err := s.readLedgers(); err != nil {
		return Found{}, err
	}
	for _, gpu := range w.GPUs {
		if processes, asked := s.least[gpu.UUID]; asked {
			s.judge(gpu, processes)
		}
	}
	found := Found{Strays: s.found}
	for problem := range s.bad {
		found.Problems = append(found.Problems, problem)
	}
	slices.Sort(found.Problems)
	return found, nil
}

// sample keeps what has been there every time.
func (s *sight) sample(uuid device.UUID, now discover.Holders, first bool) {
	if now.Err != nil {
		s.bad[now.Err.Error()] = true
	}
	kept := make(map[int]discover.Held, len(now.Processes))
	for _, p := range now.Processes {
		before, there := s.least[uuid][p.PID]
		switch {
		case first:
			kept[p.PID] = p
		case there:
			p.Bytes, p.Known = min(p.Bytes, before.Bytes), p.Known && before.Known
			kept[p.PID] = p
		}
	}
	s.least[uuid] = kept
}

// tell keeps the least that the driver has said of each job every time.
func (s *sight) tell(first bool) {
	if s.watcher.Told == nil {
		return
	}
	now := make(map[Slice]uint64)
	for _, held := range s.held {
		of := Slice{held.Job, held.Device}
		bytes, ok := s.watcher.Told(of)
		before, there := s.told[of]
		switch {
		case ok && first:
			now[of] = bytes
		case ok && there:
			now[of] = min(bytes, before)
		}
	}
	s.told = now
}

// readLedgers takes in what the ledgers say by now.
func (s *sight) readLedgers() error {
	held, err := s.watcher.Held()
	if err != nil {
		return err
	}
	s.held = held
	for _, slice := range held {
		if s.jobs[slice.Job] == nil {
			s.jobs[slice.Job] = &account{most: map[inside]uint64{}}
		}
	}
	for job, account := range s.jobs {
		if err := account.take(s.watcher, job); err != nil {
			s.bad[err.Error()] = true
		}
	}
	return nil
}
