// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/wall"
)

// wall says which wall stands: the driver's own, or the library's and the masks' alone.
func (d *doctor) wall() {
	const check = "wall"
	if d.config.Isolation != config.IsolationWall || d.inventory == nil {
		return
	}
	if os.Geteuid() != 0 {
		d.Warn(check, asRoot, "not checked: needs root")
		return
	}
	const remedy = "a driver from R615 on and cgroup v2 at /sys/fs/cgroup, or isolation: strict; until then vgpu-prolog refuses jobs with slices"
	driver, err := audit.OpenDriver(d.config)
	if err != nil {
		d.Bad(check, remedy, "%v", err)
		return
	}
	defer driver.Close()
	backend, err := wall.Probe(driver, d.inventory.GPUs)
	switch {
	case err != nil:
		d.Bad(check, remedy, "the driver does not hold jobs to their memory: %v", err)
	case d.inventory.Wall != device.WallStands:
		d.Bad(check, inventoryRemedy, "the driver would hold jobs to their memory, by %s, and the inventory does not say so", backend)
	default:
		d.OK(check, "the driver holds jobs to their memory, by %s (beta: no such driver was seen on a GPU yet)", backend)
	}
}
