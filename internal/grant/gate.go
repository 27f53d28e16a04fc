// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const maxRefusedBytes = 64 << 10

// Refused are the GPUs on which the driver refuses vgpud its calls: a line for each, behind one of this boot.
func Refused(dir rundir.Dir, bootID string) (gpus []device.UUID, err error) {
	text, err := trusted.ReadFile(dir.VgpudRefused(), maxRefusedBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which GPUs vgpud cannot keep: %w", err)
	}
	lines := strings.Fields(string(text))
	if len(lines) == 0 || lines[0] != bootID {
		return nil, nil
	}
	for _, line := range lines[1:] {
		gpus = append(gpus, device.UUID(line))
	}
	return gpus, nil
}

// Gate has the library hold the caps of the slices on these GPUs, and of no others, in every step of every job. The caller has written
// down before which GPUs are refused: a step that begins meanwhile looks there again.
func Gate(dir rundir.Dir) error {
	entries, err := os.ReadDir(dir.Jobs())
	if err != nil {
		return fmt.Errorf("have the library hold caps: %w", err)
	}
	for _, entry := range entries {
		job, numberErr := strconv.ParseUint(entry.Name(), 10, 32)
		if numberErr != nil {
			continue
		}
		g, readErr := Read(dir.Grant(uint32(job)))
		if errors.Is(readErr, fs.ErrNotExist) || readErr == nil && (g.Whole || g.Refusal != "") {
			continue
		}
		if readErr == nil {
			_, readErr = g.ChangeSteps(dir)
		}
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("have the library hold the caps of job %d: %w", job, readErr))
		}
	}
	return err
}

// refused is what a step goes by. Where it cannot be believed the library holds the caps of all GPUs: vgpud may hold them as well.
func (g Grant) refused(dir rundir.Dir) []device.UUID {
	gpus, err := Refused(dir, g.BootID)
	if err != nil {
		gpus = nil
		for _, s := range g.Slices {
			gpus = append(gpus, s.Device)
		}
	}
	return gpus
}

// isGated: who has no cap to be held pays nothing for it. vgpud holds what a job may have, and knows nothing of a step that may have less.
func (s StepSlice) isGated(refused []device.UUID, policy request.Policy) bool {
	switch {
	case policy == request.PolicyElastic:
		return false
	case isCapped(s.StepSM) && s.StepSM != s.SMPercent:
		return true
	}
	return (isCapped(s.StepSM) || isCapped(s.SMPercent)) && slices.Contains(refused, s.Device)
}

func isCapped(percent int) bool { return percent > 0 && percent < 100 }
