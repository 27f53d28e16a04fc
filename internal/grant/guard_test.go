// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

func TestTheFirstFileOfANameStandsBehindAllItsGuards(t *testing.T) {
	got := Guards("/usr/lib/slurm-vgpu/libslurm-vgpu.so", []device.DriverLibrary{
		{SONAME: device.LibraryNVML, File: "/usr/lib/libnvidia-ml.so.580"},
		{SONAME: device.LibraryCUDA, File: "/usr/lib/libcuda.so.580"},
		{SONAME: device.LibraryCUDA, File: "/opt/libcuda.so.580"},
		{SONAME: "libother.so.1", File: "/usr/lib/libother.so.1"},
		{SONAME: device.LibraryCUDA, File: "/usr/lib32/libcuda.so.580", Other: true},
	}, true)
	want := []Guard{
		{Driver: "/usr/lib/libnvidia-ml.so.580", Guard: "/usr/lib/slurm-vgpu/libnvidia-ml-guard.so", Behind: "libnvidia-ml-slurm-vgpu.so"},
		{Driver: "/usr/lib/libcuda.so.580", Guard: "/usr/lib/slurm-vgpu/libcuda-guard.so", Behind: "libcuda-slurm-vgpu.so"},
		{Driver: "/opt/libcuda.so.580", Guard: "/usr/lib/slurm-vgpu/libcuda-guard.so"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	points := []string{"libslurm-vgpu.so", "libnvidia-ml-slurm-vgpu.so", "libcuda-slurm-vgpu.so"}
	if diff := cmp.Diff(points, mountPoints(Grant{Guards: got})); diff != "" {
		t.Errorf("mount points: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(points[:1], mountPoints(Grant{})); diff != "" {
		t.Errorf("without guards: -want +got:\n%s", diff)
	}
}

func TestOtherWaysToTheGPUAreClosed(t *testing.T) {
	libraries := []device.DriverLibrary{
		{SONAME: "libnvidia-opencl.so.1", File: "/usr/lib/libnvidia-opencl.so.580", Other: true},
		{SONAME: device.LibraryCUDA, File: "/usr/lib32/libcuda.so.580", Other: true},
	}
	want := []Guard{
		{Driver: "/usr/lib/libnvidia-opencl.so.580", Guard: "/usr/lib/slurm-vgpu/libslurm-vgpu-closed.so"},
		{Driver: "/usr/lib32/libcuda.so.580", Guard: "/usr/lib/slurm-vgpu/libslurm-vgpu-closed.so"},
	}
	if diff := cmp.Diff(want, Guards("/usr/lib/slurm-vgpu/libslurm-vgpu.so", libraries, false)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := Guards("/usr/lib/slurm-vgpu/libslurm-vgpu.so", libraries, true); got != nil {
		t.Errorf("open, and yet %v", got)
	}
}
