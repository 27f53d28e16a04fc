// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command spank is spank_vgpu.so, the SPANK plugin that srun, sbatch, salloc, slurmd and slurmstepd
// load. C owns every SPANK hook, the options and whatever runs after a fork (hooks.c is the way in);
// Go is what C calls through export.go, in processes that have not forked since they loaded it.
// The work itself is in package launch. README.md says what runs where.
package main

// CFLAGS holds for the C files of this folder; Slurm's own symbols are found at load time.

// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Werror -fvisibility=default -D_FORTIFY_SOURCE=2 -fstack-protector-strong
// #cgo LDFLAGS: -Wl,--unresolved-symbols=ignore-in-object-files
import "C"

// main is never called: a c-shared library needs it to link.
func main() {}
