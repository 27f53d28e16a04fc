// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command launch is spank_vgpu_launch-VERSION.so, the part of the SPANK plugin that is written in Go. spank_vgpu.so loads it
// where options are to be read or a step has slices (spank/loader.c), and in no other process. It converts between C and package
// internal/launch, which does the work.
package main

import "C"

// main is never called: a c-shared library needs it to link.
func main() {}
