// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package device says what a GPU, a slice of one and a node's inventory are here. It is words alone:
// package inventory keeps the file, package discover asks NVML.
package device

import "math"

// UUID is NVML's "GPU-…" or "MIG-…" string, the only identity that is stored or logged.
type UUID string

// NVMLIndex is a position in NVML's order (PCI bus order), as nvidia-smi prints it.
type NVMLIndex int32

// Minor is the N of /dev/nvidiaN. It need not equal the NVML index.
type Minor int32

// GPU is one physical GPU of this node.
type GPU struct {
	UUID     UUID      `json:"uuid"`
	Index    NVMLIndex `json:"nvml_index"`
	Minor    Minor     `json:"minor"`
	PCIBusID string    `json:"pci_bus_id"`
	Name     string    `json:"name"`           // as NVML prints it: "NVIDIA H200"
	Type     string    `json:"type"`           // the GRES type made of it: "h200"
	MemMiB   int64     `json:"mem_mib"`        // total device memory as NVML says
	Lost     string    `json:"lost,omitempty"` // why no slice may be placed here, in NVML's words
	// FailedUnixS is when that was seen, of a GPU that could be used before, in this boot; 0: it was so as the inventory was written.
	FailedUnixS int64 `json:"failed_unix_s,omitempty"`
}

// IsCounted says that Slurm counts it: it can be used, or could be when the inventory was written, by which Slurm's files are.
func (g GPU) IsCounted() bool { return g.Lost == "" || g.FailedUnixS != 0 }

// GrantableMiB is what slices may hold there together, where memory may be granted that many times over.
func (g GPU) GrantableMiB(overcommit float64) int64 {
	return int64(math.Floor(float64(g.MemMiB) * max(overcommit, 1)))
}

// Inventory is the node's GPUs as NVML saw them at boot.
type Inventory struct {
	Version       int    `json:"version"`
	BootID        string `json:"boot_id"`
	DriverVersion string `json:"driver_version"`
	CUDAVersion   int    `json:"cuda_version"` // 13000 is 13.0
	GPUs          []GPU  `json:"gpus"`
	// Wall is WallStands where the driver was found to keep limits of memory by cgroup, or why it does not; "": nobody has tried.
	Wall string `json:"wall,omitempty"`
}

// WallStands is said of a driver that keeps limits of memory by cgroup.
const WallStands = "stands"

// The driver's libraries that programs load, by SONAME.
const (
	LibraryCUDA = "libcuda.so.1"
	LibraryNVML = "libnvidia-ml.so.1"
)

// DriverLibrary is a file that is loaded by this name; no link.
type DriverLibrary struct {
	SONAME string
	File   string
	Other  bool // a way to the GPU on which no slice's memory is counted: another interface than CUDA, or a 32-bit program's
}

// ByUUID finds a GPU.
func (inv Inventory) ByUUID(uuid UUID) (GPU, bool) {
	for _, gpu := range inv.GPUs {
		if gpu.UUID == uuid {
			return gpu, true
		}
	}
	return GPU{}, false
}

// Slice is a share of one device granted to one job.
type Slice struct {
	Device    UUID      `json:"device"`
	Index     NVMLIndex `json:"nvml_index"`
	Minor     Minor     `json:"minor"`
	MemMiB    int64     `json:"mem_mib"`
	SMPercent int       `json:"sm_percent"` // 0: no cap; 100: the GPU to itself
	Priority  Priority  `json:"priority,omitempty"`
	// MostMiB is what the slice once had when that is more than MemMiB: a peak may come from then.
	MostMiB int64 `json:"most_mib,omitempty"`
}

// Limit is one that a slice had before it was changed.
type Limit struct {
	UntilUnixS int64 `json:"until"` // in seconds since 1970
	MemMiB     int64 `json:"mem_mib"`
	SMPercent  int   `json:"sm_percent"` // 0: no cap
}

// mostEarlier bounds how many limits before the last one are kept of a slice.
const mostEarlier = 8

// AddLimit adds one to those that a slice had; of too many the one that was granted and the newest stay.
func AddLimit(earlier []Limit, was Limit) []Limit {
	earlier = append(earlier[:len(earlier):len(earlier)], was)
	if len(earlier) > mostEarlier {
		earlier = append(earlier[:1:1], earlier[2:]...)
	}
	return earlier
}
