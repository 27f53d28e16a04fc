// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// sampled are NVML's figures.
type sampled struct {
	active  map[device.UUID]float64        // of those that it has a figure of
	holders map[device.UUID]map[int]uint32 // nil: it was not asked this time
	orphans map[device.UUID]Orphans        // of the holders: they are not among these
	only    map[device.UUID]int            // the one process at work, of those GPUs for which it was asked
}

// samples asks NVML beside the loop, which must not wait for it.
type samples struct {
	asked chan question
	got   chan sampled
	busy  bool // a question has no answer yet
	ended chan struct{}
	held  time.Duration // when it was asked for holders
}

type question struct {
	gpus    []device.UUID // none: NVML is let go of
	holders bool
	only    []device.UUID // the log has not named the process at work there
}

func beginSamples(open func() (Sampler, error)) *samples {
	s := &samples{asked: make(chan question, 1), got: make(chan sampled), ended: make(chan struct{})}
	go s.answer(open)
	return s
}

func (s *samples) answer(open func() (Sampler, error)) {
	defer close(s.ended)
	var nvml Sampler
	var failed time.Time
	for asked := range s.asked {
		if len(asked.gpus) == 0 && nvml != nil {
			nvml.Close()
			nvml = nil
		}
		if len(asked.gpus) == 0 {
			continue
		}
		if nvml == nil && time.Since(failed) > nvmlEach {
			var err error
			if nvml, err = open(); err != nil {
				nvml, failed = nil, time.Now()
			}
		}
		found := sampled{active: map[device.UUID]float64{}}
		if nvml != nil {
			for _, gpu := range asked.gpus {
				if part, known := nvml.Active(gpu); known {
					found.active[gpu] = part
				}
			}
			found.only = map[device.UUID]int{}
			for _, gpu := range asked.only {
				if pid, known := nvml.Only(gpu); known {
					found.only[gpu] = pid
				}
			}
			if asked.holders {
				found.askHolders(nvml, asked.gpus)
			}
		}
		s.got <- found
	}
	if nvml != nil {
		nvml.Close()
	}
}

func (s *sampled) askHolders(nvml Sampler, gpus []device.UUID) {
	s.holders, s.orphans = map[device.UUID]map[int]uint32{}, map[device.UUID]Orphans{}
	for _, gpu := range gpus {
		pids, known := nvml.Holders(gpu)
		if !known {
			continue
		}
		s.holders[gpu], s.orphans[gpu] = pids, nvml.Orphans(gpu, pids)
		for _, pid := range s.orphans[gpu].PIDs {
			delete(pids, pid)
		}
	}
}

// ask is false where the last question has no answer yet.
func (s *samples) ask(gpus, only []device.UUID, now time.Duration) bool {
	if s.busy {
		return false
	}
	q := question{gpus: gpus, only: only, holders: now-s.held >= holdersEach}
	select {
	case s.asked <- q:
	default: // NVML is being let go of, and does not end
		return false
	}
	if q.holders {
		s.held = now
	}
	s.busy = true
	return true
}

// answered is called with each answer.
func (s *samples) answered() { s.busy = false }

// rest lets go of NVML, whose files keep a GPU from being reset.
func (s *samples) rest() {
	if s.busy {
		return // with the answer it is asked again
	}
	select {
	case s.asked <- question{}:
	default: // it is asked already
	}
}

// end waits for NVML only if it answers.
func (s *samples) end() {
	close(s.asked)
	for {
		select {
		case <-s.got:
		case <-s.ended:
			return
		case <-time.After(endWait):
			return
		}
	}
}
