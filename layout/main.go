// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpu-layout reads and writes the limits pages and the ledger of a job for programs of another build, which lay them out
// otherwise. The prolog keeps it with the library that a job is started with; nobody types it.
package main

import (
	"fmt"
	"os"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("vgpu-layout", version.Number, "layout", ledger.LayoutVersion)
		return
	}
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "vgpu-layout: takes a question of another program of slurm-vgpu on its standard input")
		os.Exit(2)
	}
	if err := ledger.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vgpu-layout:", err)
		os.Exit(1)
	}
}
