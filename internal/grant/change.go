// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// askedFile holds, in a step's folder, what the step asked for beyond its job: the canonical form
// of a request. A step that asked for nothing has none.
const askedFile = "asked"

// keepAsked leaves what changeStep needs.
func keepAsked(folder string, own request.Request) error {
	text := own.Encode()
	path := filepath.Join(folder, askedFile)
	if text == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return trusted.WriteFile(path, []byte(text), 0o644)
}

// ChangeSteps puts the grant's limits, and who holds its caps, into force for every step that runs, and names these. A step
// keeps what it asked for as far as the job still has that; the other steps have what the job has.
func (g Grant) ChangeSteps(dir rundir.Dir) (steps []string, err error) {
	folder, refused := filepath.Dir(dir.Step(g.Job, "any")), g.refused(dir)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("change steps of job %d: %w", g.Job, err)
	}
	for _, entry := range entries {
		switch changed := g.changeStep(filepath.Join(folder, entry.Name()), refused); {
		case changed == nil && !strings.HasPrefix(entry.Name(), endedMark):
			steps = append(steps, entry.Name())
		case changed == nil: // it has ended, and its container has not
		case errors.Is(changed, fs.ErrNotExist): // it ends, or its plugin will look at the grant again
		default:
			err = errors.Join(err, fmt.Errorf("change step %d.%s: %w", g.Job, entry.Name(), changed))
		}
	}
	return steps, err
}

func (g Grant) changeStep(folder string, refused []device.UUID) error {
	var own request.Request
	text, err := trusted.ReadFile(filepath.Join(folder, askedFile), request.MaxWireBytes)
	if err == nil {
		own, err = request.Decode(string(text))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var limits ledger.Limits
	for i, s := range g.Slices {
		limits.Devices = append(limits.Devices, g.clampSlice(i, s, own).limits(refused, g.policy(own)))
	}
	return ledger.ChangeLimits(filepath.Join(folder, ledger.LimitsFile), limits)
}
