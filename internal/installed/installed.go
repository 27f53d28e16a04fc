// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package installed finds the programs and libraries of one installation: beside each other where they were built, and in
// lib/slurm-vgpu, bin and sbin of one prefix where `make install` and the packages put them. It starts those for which a prolog or an epilog does not wait.
package installed

import (
	"fmt"
	"os"
	"path/filepath"
)

// usual is where the packages put what no user starts.
const usual = "/usr/lib/slurm-vgpu"

// Find is where a file of the running program's installation is.
func Find(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	dir := filepath.Dir(self)
	prefix := filepath.Dir(dir) // of bin and sbin
	if filepath.Base(dir) == filepath.Base(usual) {
		prefix = filepath.Dir(prefix) // of lib/slurm-vgpu
	}
	for _, folder := range []string{dir, filepath.Join(prefix, "lib", filepath.Base(usual)), filepath.Join(prefix, "bin"), filepath.Join(prefix, "sbin")} {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", &os.PathError{Op: "find", Path: filepath.Join(dir, name), Err: os.ErrNotExist}
}

// Usual is the same, or where the packages have it.
func Usual(name string) string {
	if path, err := Find(name); err == nil {
		return path
	}
	return filepath.Join(usual, name)
}
