// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// TestWhatDrainNames: a name that no GPU of the node has was without effect, and nothing said so.
func TestWhatDrainNames(t *testing.T) {
	inv := device.Inventory{GPUs: slices.Clone(twoH200.GPUs)}
	inv.GPUs[0].UUID, inv.GPUs[1].UUID = "GPU-1b2c3d4e-0000-0000", "GPU-1b2c3d4e-1111-1111"
	for name, want := range map[device.UUID]Finding{
		"GPU-1b2c3d4e-0000-0000": {OK: true, Says: "GPU-1b2c3d4e-0000-0000 gets no new slices"},
		"GPU-1B2C3D4E-0":         {OK: true, Says: "GPU-1b2c3d4e-0000-0000 gets no new slices"},
		"GPU-1b2c3d4e":           {Warning: true, Says: "GPU-1b2c3d4e is the beginning of 2 UUIDs, and none of these GPUs gets new slices", Remedy: "config.yaml: more of the UUID"},
		"GPU-1b2c3d4": {Warning: true, Says: "GPU-1b2c3d4 is no GPU of this node: it drains nothing here",
			Remedy: "config.yaml: a UUID as nvidia-smi -L prints it, or 8 characters of it after GPU- at least"},
	} {
		site, _ := goodSite(t)
		site.Inventory, site.Config.Drain = &inv, []device.UUID{name}
		all, err := site.Check()
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(all, func(f Finding) bool { return f.Check != "drain" })
		want.Check = "drain"
		if diff := cmp.Diff([]Finding{want}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
