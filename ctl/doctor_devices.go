// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// deviceFiles looks whether they are closed where they are to be.
func (d *doctor) deviceFiles() {
	const check = "device files"
	set := d.config.DeviceSet()
	files, err := set.Look()
	switch wrong := wrongDevices(d.config, files); {
	case d.config.DeviceFiles == config.FilesClosed && !d.config.ClosesFiles():
		d.Bad(check, "isolation: strict, or device_files: open", "with isolation: preload steps can get no files of their own, so that nothing is closed")
		return
	case err != nil:
		d.Bad(check, "name the folder in device_dir", "%v", err)
		return
	case len(wrong) > 0 && d.config.ClosesFiles():
		d.Bad(check, "vgpuctl devices close, and see that slurm-vgpu-devices.service is enabled", "device_files is closed, and yet open, missing or without a file for steps: %s",
			strings.Join(wrong, ", "))
	case len(wrong) > 0:
		d.Bad(check, "vgpuctl devices open, or device_files: closed", "device_files is open, and yet closed to users: %s", strings.Join(wrong, ", "))
	case d.config.ClosesFiles():
		d.OK(check, "closed to everybody who holds no GPU, in %s", d.config.DeviceDir)
	default: // a warning says so, with the other open ways
	}
	if !d.config.ClosesFiles() {
		return
	}
	if err := set.KnowsGroup(); err != nil {
		d.Bad(check, "make the group, or name another in device_group; until then only root may open them", "%v", err)
	}
	if loose := loose(files); len(loose) > 0 {
		d.Bad(check, "vgpuctl devices close, and see that slurm-vgpu-devices.service is enabled",
			"closed, but not held: programs of root's that start NVML or CUDA, and nvidia-modprobe, which every user may run, open them again: %s", strings.Join(loose, ", "))
	}
}
