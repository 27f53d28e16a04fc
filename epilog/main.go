// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpu-epilog is slurmd's Epilog on a node with GPUs: it releases a job's slices and hands on what
// the job used.
//
// It exits with 0 whatever happens to it, because anything else drains the node: slices that it
// could not release are found by the next prolog.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

const (
	exitOK    = 0
	exitUsage = 2
)

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) int {
	flags := pflag.NewFlagSet("vgpu-epilog", pflag.ContinueOnError)
	configPath := flags.String("config", config.DefaultPath, "configuration file")
	showVersion := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return exitOK
		}
		fmt.Fprintln(os.Stderr, "vgpu-epilog:", err)
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "vgpu-epilog: unexpected argument %q\n", flags.Arg(0))
		return exitUsage
	}
	if *showVersion {
		fmt.Println("vgpu-epilog", version.Number)
		return exitOK
	}
	return run(*configPath)
}
