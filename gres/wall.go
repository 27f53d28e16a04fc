// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/wall"
)

// tryWall finds out whether the driver keeps limits of memory by cgroup.
func tryWall(cfg config.Config, inv device.Inventory) (string, error) {
	driver, err := audit.OpenDriver(cfg)
	if err != nil {
		return "", err
	}
	defer driver.Close()
	if _, err := wall.Probe(driver, inv.GPUs); err != nil {
		return "", fmt.Errorf("isolation: wall cannot be had here: %w", err)
	}
	return device.WallStands, nil
}
