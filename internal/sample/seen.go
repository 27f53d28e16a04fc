// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// seen is what one look leaves for the next: sample.json.
type seen struct {
	Version  int                     `json:"version"`
	AtUnixMs int64                   `json:"at_unix_ms"`
	GPUs     map[device.UUID]seenGPU `json:"gpus"`
	// Problem is what was logged last, so that it is logged once.
	Problem string `json:"problem,omitempty"`
}

type seenGPU struct {
	LastUs uint64      `json:"last_us"` // the newest that told of work; 0: the driver was not asked, or had none
	Runs   []state.Run `json:"runs"`    // that had a slice
}

const (
	seenVersion  = 1
	maxSeenBytes = 1 << 20
)

// readSeen returns nothing where nothing can be gone on from: that costs one interval.
func readSeen(path string) (last seen) {
	data, err := trusted.ReadFile(path, maxSeenBytes)
	if err != nil {
		return seen{}
	}
	if err := json.Unmarshal(data, &last); err != nil || last.Version != seenVersion {
		return seen{}
	}
	return last
}

func (s seen) write(path string) error {
	s.Version = seenVersion
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := trusted.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write what was seen: %w", err)
	}
	return nil
}

// since is how long ago the last look was; false: there was none that counts, as when the clock was set.
func (s seen) since(now time.Time) (time.Duration, bool) {
	ago := now.Sub(time.UnixMilli(s.AtUnixMs))
	return ago, s.AtUnixMs != 0 && ago > 0
}

// from is since when a GPU's samples are new.
func (s seen) from(uuid device.UUID, now time.Time) uint64 {
	oldest, newest := uint64(now.Add(-remembered).UnixMicro()), uint64(now.UnixMicro())
	if last := s.GPUs[uuid].LastUs; last > oldest && last <= newest {
		return last
	}
	return oldest
}

// stayed says that no run has left a GPU since.
func (s seen) stayed(uuid device.UUID, now []state.Run) bool {
	before, known := s.GPUs[uuid]
	return known && !slices.ContainsFunc(before.Runs, func(run state.Run) bool { return !slices.Contains(now, run) })
}
