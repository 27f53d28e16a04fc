// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package devfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Numbers of NVIDIA's driver for Linux (nvidia-modprobe-utils.h): all its files but those of other modules have one major.
const (
	nvidiaMajor   = 195
	firstControl  = 254 // from here on minors are no GPUs
	modesetMinor  = 254
	controlMinor  = 255
	maxProcBytes  = 64 << 10
	modifyKey     = "ModifyDeviceFiles:"
	minorKey      = "Device Minor:"
	modesetModule = "nvidia-modeset"
)

// DriverModifies says whether the driver's tools may make device files anew, which every program of root's that starts NVML or CUDA does
// then, and nvidia-modprobe, a set-user-ID program, for everybody who runs it. known is false where there is no driver that would say.
func (s Set) DriverModifies() (modifies, known bool) {
	if s.Proc == "" {
		return false, false
	}
	value, ok := field(filepath.Join(s.Proc, "driver/nvidia/params"), modifyKey)
	return value != "0", ok
}

// driversGPUs are the minors of the GPUs that the driver has, whether they have files or not.
func (s Set) driversGPUs() (minors []int) {
	if s.Proc == "" {
		return nil
	}
	pages, err := filepath.Glob(filepath.Join(s.Proc, "driver/nvidia/gpus/*/information"))
	if err != nil {
		return nil
	}
	for _, page := range pages {
		value, _ := field(page, minorKey)
		if minor, err := strconv.Atoi(value); err == nil && minor >= 0 && minor < firstControl {
			minors = append(minors, minor)
		}
	}
	return minors
}

// make makes the file of a GPU that has none: nvidia-modprobe does not where it may change none.
func (s Set) make(minor int, mode uint32) error {
	if _, err := lstat(s.path(minor)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := mknod(s.path(minor), unix.Mkdev(nvidiaMajor, uint32(minor))); err != nil {
		return err
	}
	return own(s.path(minor), 0, mode)
}

// makeShared makes the files that all GPUs share, where nobody else does. nvidia-uvm is not among them: nvidia-modprobe
// makes it whatever it is told (nvidia-modprobe-utils.c, nvidia_uvm_mknod).
func (s Set) makeShared() error {
	if modifies, known := s.DriverModifies(); modifies || !known {
		return nil
	}
	names := map[string]uint32{"nvidiactl": controlMinor}
	if devices, err := read(filepath.Join(s.Proc, "devices")); err == nil && strings.Contains(devices, " "+modesetModule+"\n") {
		names[modesetModule] = modesetMinor
	}
	var errs []error
	for name, minor := range names {
		path := filepath.Join(s.Dir, name)
		if _, err := lstat(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		if err := mknod(path, unix.Mkdev(nvidiaMajor, minor)); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, own(path, 0, openMode))
	}
	return errors.Join(errs...)
}

// field is what follows a key on its line of one of the kernel's pages.
func field(path, key string) (value string, ok bool) {
	text, err := read(path)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

func read(path string) (string, error) {
	data, err := os.ReadFile(path)
	return string(data[:min(len(data), maxProcBytes)]), err
}
