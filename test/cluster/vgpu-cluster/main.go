// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command vgpu-cluster brings up a private Slurm with slurm-vgpu in it. It is started from where
// `make build` put it, beside the other outputs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

const usage = `usage: vgpu-cluster COMMAND [FLAG…]
  up             bring a cluster up and leave it
  down           stop it
  run -- LINE…   bring one up, run shell command lines in it as its first user, stop it
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	flags := flag.NewFlagSet("vgpu-cluster "+os.Args[1], flag.ExitOnError)
	var options cluster.Options
	flags.IntVar(&options.NodeCount, "nodes", 1, "slurmd `count`, all on this machine")
	flags.BoolVar(&options.Whole, "whole", false, "two more nodes, with whole GPUs beside slices")
	flags.StringVar(&options.GPU, "gpu", "auto", "sim, real, or auto: real where there is one")
	flags.BoolVar(&options.Plain, "plain", false, "Slurm alone, without slurm-vgpu")
	users := flags.String("users", "", "two existing `users`, comma-separated; default: made and removed again")
	flags.StringVar(&options.Isolation, "isolation", "", "strict or preload")
	_ = flags.Parse(os.Args[2:])
	if *users != "" {
		options.UserNames = strings.Split(*users, ",")
	}
	executable, err := os.Executable()
	if err != nil {
		fail(err)
	}
	options.Build = filepath.Dir(executable)
	options.Source = filepath.Dir(options.Build)
	options.ExtraPath = os.Getenv("PATH")
	switch os.Args[1] {
	case "up":
		err = up(options.Build, os.Args[2:])
	case "down":
		err = down(options.Build)
	case "hold":
		os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int { return hold(ctx, home, options) }))
	case "run":
		os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
			return run(ctx, home, options, flags.Args())
		}))
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cluster:", err)
	os.Exit(1)
}

func run(ctx context.Context, home cluster.Home, options cluster.Options, lines []string) int {
	options.Progress = func(text string) { fmt.Fprintln(os.Stderr, "cluster:", text) }
	c, err := cluster.Start(ctx, home, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	code := 0
	for _, line := range lines {
		result := c.Run(ctx, c.Users[0], line)
		fmt.Println(result)
		code = max(code, result.Code)
	}
	c.Stop(ctx)
	return code
}
