// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package wall

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

// Mount finds the hierarchy of cgroup v2. NVIDIA wants it at /sys/fs/cgroup, and so does Slurm's cgroup/v2.
func Mount() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("look for cgroup v2: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" && isCgroup2(fields[1]) {
			return fields[1], nil
		}
	}
	return "", errors.New("cgroup v2 is not mounted")
}

func isCgroup2(folder string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(folder, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// enableDmem has the kernel count device memory for a folder, where it can (6.14 and later): Slurm enables the controllers that
// it knows and no other (src/plugins/cgroup/v2/cgroup_v2.c), and the driver finds no dmem.max in a folder below one that does not
// hand the controller down. Where the kernel cannot, the driver keeps a table of its own.
func enableDmem(folder string) error {
	var above []string // from the root of the hierarchy down
	for dir := filepath.Dir(folder); isCgroup2(dir); dir = filepath.Dir(dir) {
		above = append(above, dir)
	}
	slices.Reverse(above)
	for _, dir := range above {
		if !names(filepath.Join(dir, "cgroup.controllers"), "dmem") {
			return nil
		}
		control := filepath.Join(dir, "cgroup.subtree_control")
		if names(control, "dmem") {
			continue
		}
		if err := os.WriteFile(control, []byte("+dmem"), 0); err != nil {
			return fmt.Errorf("enable dmem for %s: %w", folder, err)
		}
	}
	return nil
}

func names(file, word string) bool {
	text, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(text)), word)
}

// Probe tries on an empty cgroup of its own whether limits are kept for every GPU, and names the backend that keeps them.
func Probe(driver Driver, gpus []device.GPU) (backend string, err error) {
	mount, err := Mount()
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp(mount, "slurm-vgpu-probe-")
	if err != nil {
		return "", fmt.Errorf("make a cgroup to try limits on: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(folder)) }()
	if err := enableDmem(folder); err != nil {
		return "", err
	}
	const tried = 64 << 20
	for _, gpu := range gpus {
		if gpu.Lost != "" {
			continue
		}
		if err := driver.SetLimit(gpu.UUID, folder, tried); err != nil {
			return "", err
		}
		now, err := driver.Limit(gpu.UUID, folder)
		if err != nil {
			return "", err
		}
		if now.HardBytes != tried {
			return "", fmt.Errorf("the driver keeps %d bytes for %d on %s", now.HardBytes, tried, gpu.UUID)
		}
		if err := driver.SetLimit(gpu.UUID, folder, discover.Unlimited); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "dmem.max")); err == nil {
		return "the kernel's dmem controller", nil
	}
	return "the driver's own table", nil
}
