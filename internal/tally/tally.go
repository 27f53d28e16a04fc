// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package tally counts what the prologs of a node did since boot, for monitoring. No decision depends on it: a
// count that cannot be kept is lost, and no prolog waits for it.
package tally

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Reasons for which a job got no slice. They are labels of metrics, so that there are few.
const (
	Fragmentation = "fragmentation" // it fits when other slices are gone
	Unavailable   = "unavailable"   // it fits when lost or draining GPUs are back
	Never         = "never"         // it fits no state of this node
	Other         = "other"         // nobody came so far as to place it
)

// Reasons are all of them.
var Reasons = []string{Fragmentation, Unavailable, Never, Other}

// Bounds are the upper ones of Counts.Within, in seconds.
var Bounds = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Counts are what counts.json says.
type Counts struct {
	Version  int               `json:"version"`
	BootID   string            `json:"boot_id"`
	Refusals map[string]uint64 `json:"refusals"` // by reason
	Prologs  uint64            `json:"prologs"`  // that placed or refused a job
	Seconds  float64           `json:"seconds"`  // … took together
	Within   []uint64          `json:"within"`   // … took at most as long as each of Bounds
}

const (
	version  = 1
	maxBytes = 64 << 10
	// lockWait is longer than many prologs need that come at once.
	lockWait = time.Second
)

// Read takes no lock. Where nothing was counted since boot, all is 0.
func Read(dir rundir.Dir, boot string) (Counts, error) {
	empty := Counts{Version: version, BootID: boot, Refusals: map[string]uint64{}, Within: make([]uint64, len(Bounds))}
	data, err := trusted.ReadFile(dir.Counts(), maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, err
	}
	var c Counts
	if err := json.Unmarshal(data, &c); err != nil {
		return empty, fmt.Errorf("read %s: %w", dir.Counts(), err)
	}
	if c.Version != version || c.BootID != boot || len(c.Within) != len(Bounds) || c.Refusals == nil {
		return empty, nil
	}
	return c, nil
}

// Add counts a prolog that placed a job, or refused it: reason is "" where it did not.
func Add(dir rundir.Dir, boot, reason string, took time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	held, err := trusted.Lock(ctx, dir.Lock())
	if err != nil {
		return fmt.Errorf("count a prolog: %w", err)
	}
	defer held.Close()
	c, err := Read(dir, boot)
	if err != nil && !errors.Is(err, trusted.ErrUntrusted) && !isSyntax(err) {
		return fmt.Errorf("count a prolog: %w", err)
	}
	if reason != "" {
		c.Refusals[reason]++
	}
	c.Prologs++
	c.Seconds += took.Seconds()
	for i, most := range Bounds {
		if took.Seconds() <= most {
			c.Within[i]++
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("count a prolog: %w", err)
	}
	if err := trusted.WriteFile(dir.Counts(), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("count a prolog: %w", err)
	}
	return nil
}

// isSyntax says that the file is damaged, and is made anew.
func isSyntax(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	return syntax || kind
}
