// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"path/filepath"
	"strings"
)

// libraryName is the interposer's file name wherever it is installed.
const libraryName = "libslurm-vgpu.so"

// preloads splits LD_PRELOAD as ld.so does: at colons and spaces.
func preloads(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ' ' })
}

// DropPreload takes the interposer out of an LD_PRELOAD list.
func DropPreload(list string) string {
	var kept []string
	for _, library := range preloads(list) {
		if filepath.Base(library) != libraryName {
			kept = append(kept, library)
		}
	}
	return strings.Join(kept, ":")
}

// prependPreload puts the library first, once: srun inherits what the batch step already has.
func prependPreload(list, library string) string {
	kept := []string{library}
	for _, other := range preloads(DropPreload(list)) {
		if other != library {
			kept = append(kept, other)
		}
	}
	return strings.Join(kept, ":")
}
