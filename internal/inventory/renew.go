// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// gone is said of a GPU that NVML lists no more, not even as one that is lost.
const gone = "NVML does not list it any more"

// Renew is an inventory of this boot, with what NVML says now of the GPUs in it: some cannot be used any more, others can again. Those of which
// that has changed are returned as well. GPUs keep their places, and none comes or goes: Slurm's counts go by the inventory as it was written.
func Renew(inv, seen device.Inventory, now time.Time) (renewed device.Inventory, changed []device.GPU) {
	inv.GPUs = slices.Clone(inv.GPUs)
	for i := range inv.GPUs {
		gpu := &inv.GPUs[i]
		before := *gpu
		switch is, listed := seen.ByUUID(gpu.UUID); {
		case gpu.MemMiB == 0 && (!listed || is.Lost == ""): // lost as the inventory was written, which does not know its size
		case listed:
			gpu.Lost = is.Lost
		default:
			gpu.Lost = whyUnlisted(seen, before)
		}
		switch {
		case gpu.Lost == "":
			gpu.FailedUnixS = 0
		case before.Lost == "":
			gpu.FailedUnixS = now.Unix()
		}
		if *gpu != before {
			changed = append(changed, *gpu)
		}
	}
	return inv, changed
}

// whyUnlisted is the reason of a GPU that cannot say its UUID any more: by its place on the bus, or where it does not say that either by its index.
func whyUnlisted(seen device.Inventory, was device.GPU) string {
	for _, gpu := range seen.GPUs {
		if gpu.Lost != "" && (gpu.PCIBusID == was.PCIBusID || gpu.PCIBusID == "" && gpu.Index == was.Index) {
			return gpu.Lost
		}
	}
	return gone
}

// IsOfOthers says that NVML sees other GPUs than those of an inventory of this boot, whatever has become of these.
func IsOfOthers(inv, seen device.Inventory) bool {
	renewed, _ := Renew(inv, seen, time.Time{})
	return len(seen.GPUs) > len(inv.GPUs) || slices.ContainsFunc(seen.GPUs, func(gpu device.GPU) bool {
		known, listed := renewed.ByUUID(gpu.UUID)
		return gpu.Lost == "" && (!listed || known != gpu)
	})
}
