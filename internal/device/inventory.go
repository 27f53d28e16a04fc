// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// InventoryVersion is the layout of inventory.json.
const InventoryVersion = 1

// maxInventoryBytes bounds inventory.json; a node of 16 GPUs needs some 5 KiB.
const maxInventoryBytes = 1 << 20

// ErrInventory is wrapped when inventory.json exists but does not hold an inventory of this layout.
var ErrInventory = errors.New("not an inventory of this version")

// ReadInventory reads a trusted inventory.json. A missing file is fs.ErrNotExist. Whether the
// inventory is of this boot is the caller's question: compare BootID with the one of this package.
func ReadInventory(path string) (Inventory, error) {
	data, err := trusted.ReadFile(path, maxInventoryBytes)
	if err != nil {
		return Inventory{}, fmt.Errorf("read inventory: %w", err)
	}
	var inv Inventory
	if err := json.Unmarshal(data, &inv); err != nil {
		return Inventory{}, fmt.Errorf("read inventory %s: %w: %w", path, ErrInventory, err)
	}
	if inv.Version != InventoryVersion {
		return Inventory{}, fmt.Errorf("read inventory %s: %w: version %d, want %d", path, ErrInventory, inv.Version, InventoryVersion)
	}
	seen := make(map[UUID]bool, len(inv.GPUs))
	for i, gpu := range inv.GPUs {
		switch {
		case gpu.UUID == "" || seen[gpu.UUID]:
			return Inventory{}, fmt.Errorf("read inventory %s: %w: gpus[%d] has no UUID of its own (%q)", path, ErrInventory, i, gpu.UUID)
		case gpu.MemMiB < 0:
			return Inventory{}, fmt.Errorf("read inventory %s: %w: gpus[%d] has %d MiB", path, ErrInventory, i, gpu.MemMiB)
		}
		seen[gpu.UUID] = true
	}
	return inv, nil
}

// WriteInventory replaces inventory.json in one step; every user may read it.
// The inventory's Version is set here.
func WriteInventory(path string, inv Inventory) error {
	inv.Version = InventoryVersion
	if inv.GPUs == nil {
		inv.GPUs = []GPU{}
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
