// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// maxGrantBytes bounds grant.json.
const maxGrantBytes = 1 << 20

// ErrGrant is wrapped when grant.json exists but does not hold a grant of this version.
var ErrGrant = errors.New("not a grant of this version")

// Read reads a trusted grant.json. A missing file is fs.ErrNotExist.
func Read(path string) (Grant, error) {
	var g Grant
	err := trusted.Look(path, maxGrantBytes, func(data []byte) error {
		if err := json.Unmarshal(data, &g); err != nil {
			return fmt.Errorf("%s: %w: %w", path, ErrGrant, err)
		}
		return nil
	})
	if err != nil {
		return Grant{}, fmt.Errorf("read grant: %w", err)
	}
	if err := g.check(); err != nil {
		return Grant{}, fmt.Errorf("read grant %s: %w: %w", path, ErrGrant, err)
	}
	return g, nil
}

func (g Grant) check() error {
	switch {
	case g.Version != Version:
		return fmt.Errorf("version %d, want %d", g.Version, Version)
	case g.Job == 0:
		return errors.New("no job")
	case len(g.Slices) > ledger.MaxDevices:
		return fmt.Errorf("%d slices, at most %d", len(g.Slices), ledger.MaxDevices)
	case len(g.Slices) == 0 && g.Refusal == "" && !g.Whole:
		return errors.New("neither slices nor a refusal")
	case len(g.Slices) > 0 && g.Refusal != "":
		return errors.New("both slices and a refusal")
	}
	for i, s := range g.Slices {
		if s.Device == "" || s.MemMiB <= 0 || s.SMPercent < 0 || s.SMPercent > 100 || s.Index < 0 || s.Minor < 0 {
			return fmt.Errorf("slice %d is not one: %+v", i, s)
		}
	}
	return nil
}

// Write replaces grant.json in one step; every user may read it. The grant's Version is set here.
func Write(path string, g Grant) error {
	g.Version = Version
	if g.Slices == nil {
		g.Slices = []device.Slice{}
	}
	if err := g.check(); err != nil {
		return fmt.Errorf("write grant %s: %w", path, err)
	}
	data, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return fmt.Errorf("write grant %s: %w", path, err)
	}
	crashpoint.At("grant/before-write")
	if err := trusted.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write grant: %w", err)
	}
	crashpoint.At("grant/written")
	return nil
}

// Bounds are what the job can have used.
func (g Grant) Bounds() ledger.Bounds {
	bounds := ledger.Bounds{Bytes: make([]uint64, len(g.Slices))}
	for i, s := range g.Slices {
		bounds.Bytes[i] = mibBytes(max(s.MemMiB, s.MostMiB))
	}
	return bounds
}

func mibBytes(mib int64) uint64 { return uint64(max(mib, 0)) << 20 }
