// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"path/filepath"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// closedFile has none of the driver's names; it stands beside the interposer.
const closedFile = "libslurm-vgpu-closed.so"

// LibraryFile is the interposer's name in a step's folder, which the guards look for.
const LibraryFile = "libslurm-vgpu.so"

// Guard is a library of ours that stands in a step where a library of the driver stands outside.
type Guard struct {
	Driver string `json:"driver"`           // the driver's file
	Guard  string `json:"guard"`            // what is mounted over it
	Behind string `json:"behind,omitempty"` // the driver's name in the step's folder; "" for a second file of one name
}

// guardOf is the file beside the interposer, and the driver's name behind it (guard/guard.mk).
var guardOf = map[string]struct{ file, behind string }{
	device.LibraryCUDA: {"libcuda-guard.so", "libcuda-slurm-vgpu.so"},
	device.LibraryNVML: {"libnvidia-ml-guard.so", "libnvidia-ml-slurm-vgpu.so"},
}

// BuildFiles are the names of what a build loads into jobs. They stand beside each other.
func BuildFiles() []string {
	names := []string{LibraryFile, closedFile}
	for _, guard := range guardOf {
		names = append(names, guard.file)
	}
	slices.Sort(names)
	return names
}

// Guards are those over the driver's libraries, in the dynamic linker's order: the first file of a name is what stands
// behind all guards of that name. Over other ways to the GPU stands what closes them, unless they are open.
func Guards(library string, libraries []device.DriverLibrary, othersOpen bool) []Guard {
	var guards []Guard
	seen := map[string]bool{}
	for _, of := range libraries {
		if of.Other {
			if !othersOpen {
				guards = append(guards, Guard{Driver: of.File, Guard: filepath.Join(filepath.Dir(library), closedFile)})
			}
			continue
		}
		names, known := guardOf[of.SONAME]
		if !known {
			continue
		}
		guard := Guard{Driver: of.File, Guard: filepath.Join(filepath.Dir(library), names.file)}
		if !seen[of.SONAME] {
			guard.Behind = names.behind
			seen[of.SONAME] = true
		}
		guards = append(guards, guard)
	}
	return guards
}
