// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package inventory keeps inventory.json: the GPUs of this node as discover saw them at this boot.
package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Version is the layout of inventory.json.
const Version = 1

// maxBytes bounds inventory.json; a node of 16 GPUs needs some 5 KiB.
const maxBytes = 1 << 20

// ErrLayout is wrapped when inventory.json exists but does not hold an inventory of this layout.
var ErrLayout = errors.New("not an inventory of this version")

// Read reads a trusted inventory.json. A missing file is fs.ErrNotExist. Whether the
// inventory is of this boot is the caller's question: compare BootID with the one of this package.
func Read(path string) (device.Inventory, error) {
	data, err := trusted.ReadFile(path, maxBytes)
	if err != nil {
		return device.Inventory{}, fmt.Errorf("read inventory: %w", err)
	}
	var inv device.Inventory
	if err := json.Unmarshal(data, &inv); err != nil {
		return device.Inventory{}, fmt.Errorf("read inventory %s: %w: %w", path, ErrLayout, err)
	}
	if inv.Version != Version {
		return device.Inventory{}, fmt.Errorf("read inventory %s: %w: version %d, want %d", path, ErrLayout, inv.Version, Version)
	}
	seen := make(map[device.UUID]bool, len(inv.GPUs))
	for i, gpu := range inv.GPUs {
		switch {
		case gpu.UUID == "" || seen[gpu.UUID]:
			return device.Inventory{}, fmt.Errorf("read inventory %s: %w: gpus[%d] has no UUID of its own (%q)", path, ErrLayout, i, gpu.UUID)
		case gpu.MemMiB < 0:
			return device.Inventory{}, fmt.Errorf("read inventory %s: %w: gpus[%d] has %d MiB", path, ErrLayout, i, gpu.MemMiB)
		}
		seen[gpu.UUID] = true
	}
	return inv, nil
}

// Write replaces inventory.json in one step; every user may read it.
// The inventory's Version is set here.
func Write(path string, inv device.Inventory) error {
	inv.Version = Version
	if inv.GPUs == nil {
		inv.GPUs = []device.GPU{}
	}
	data, err := json.MarshalIndent(inv, "", "  ")
	if err != nil {
		return fmt.Errorf("write inventory %s: %w", path, err)
	}
	if err := trusted.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write inventory: %w", err)
	}
	return nil
}

// SlurmsOwn is the reason recorded for a GPU that Slurm hands out by itself.
const SlurmsOwn = "Slurm hands it out by itself (slurm_gpus)"

// Leave returns the inventory without those GPUs for slices that Slurm hands out by itself.
func Leave(inv device.Inventory, minors []int) device.Inventory {
	inv.GPUs = slices.Clone(inv.GPUs)
	for i, gpu := range inv.GPUs {
		switch slurms := slices.Contains(minors, int(gpu.Minor)); {
		case slurms && gpu.Lost == "":
			inv.GPUs[i].Lost = SlurmsOwn
		case !slurms && gpu.Lost == SlurmsOwn: // of an earlier configuration
			inv.GPUs[i].Lost = ""
		}
	}
	return inv
}

// BootID is the kernel's name for this boot. Slices and inventories of another boot are void.
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if id == "" {
		return "", errors.New("read boot id: /proc/sys/kernel/random/boot_id is empty")
	}
	return id, nil
}
