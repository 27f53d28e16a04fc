// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpu-draw draws as SVG what `vgpuctl report --json` prints, for `vgpuctl report --svg`. It is a program of its own because the
// libraries that draw make every start longer, and vgpuctl is started by each epilog.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/picture"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("vgpu-draw", version.Number)
		return
	}
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "usage: vgpuctl report JOB --json | vgpu-draw > FILE.svg")
		os.Exit(2)
	}
	if err := picture.Draw(os.Stdin, os.Stdout, time.Now(), time.Local); err != nil {
		fmt.Fprintln(os.Stderr, err) // vgpuctl says whose it is
		os.Exit(1)
	}
}
