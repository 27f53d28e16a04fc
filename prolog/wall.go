// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
)

// wallCommand is what the plugin runs to have the driver hold the job to its memory. NVML does not run in here: whether the
// driver does that was tried when the inventory was written. A node that was asked for a wall and has none refuses: with less
// than that, nobody would notice.
func (p *prolog) wallCommand(inv device.Inventory) ([]string, error) {
	switch inv.Wall {
	case device.WallStands:
	case "":
		return nil, errors.New("isolation is wall, and the driver was not tried: vgpu-gres inventory --write tries whether it keeps limits")
	default:
		return nil, fmt.Errorf("isolation is wall: %s", inv.Wall)
	}
	tool, err := installed.Find("vgpuctl")
	if err != nil {
		return nil, fmt.Errorf("isolation is wall: %w", err)
	}
	return []string{tool, "--config", p.opts.configPath, "--node", p.node, "wall", "raise"}, nil
}
