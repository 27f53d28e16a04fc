// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Refused are the GPUs that vgpud has left to the library.
func (s Store) Refused() []device.UUID {
	gpus, err := grant.Refused(s.Dir, s.BootID)
	if err != nil {
		s.Log.Error("which GPUs vgpud cannot keep is not known", "reason", err)
	}
	return gpus
}

// Refuse leaves a GPU to the library from now on.
func (s Store) Refuse(ctx context.Context, gpu device.UUID) error {
	return s.refuse(ctx, func(before []device.UUID) []device.UUID { return append(before, gpu) })
}

// Accept has vgpud keep a GPU again.
func (s Store) Accept(ctx context.Context, gpu device.UUID) error {
	return s.refuse(ctx, func(before []device.UUID) []device.UUID {
		return slices.DeleteFunc(before, func(other device.UUID) bool { return other == gpu })
	})
}

// refuse changes which GPUs are refused. All steps follow, and whoever watches the state file.
func (s Store) refuse(ctx context.Context, change func([]device.UUID) []device.UUID) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	gpus := change(s.Refused())
	slices.Sort(gpus)
	if gpus = slices.Compact(gpus); len(gpus) == 0 {
		err = os.Remove(s.Dir.VgpudRefused())
	} else {
		text := append([]byte(s.BootID), '\n')
		for _, gpu := range gpus {
			text = append(append(text, gpu...), '\n')
		}
		err = trusted.WriteFile(s.Dir.VgpudRefused(), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write down which GPUs vgpud cannot keep: %w", err)
	}
	tx.dirty = true
	return errors.Join(grant.Gate(s.Dir), tx.Commit())
}
