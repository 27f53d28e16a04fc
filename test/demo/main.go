// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command vgpu-demo runs the main job of slurm-vgpu before the reader's eyes, on a private cluster:
// a slice of a GPU is asked for, scheduled, enforced, shared, refused and accounted. Every command
// shown is the command that ran. It exits non-zero when anything is not as it should be.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

func main() {
	gpu := flag.String("gpu", "auto", "sim, real, or auto: real where there is one")
	users := flag.String("users", "", "two existing `users`, comma-separated; default: made and removed again")
	python := flag.String("torch-python", "", "a python3 with PyTorch; default: the one in PATH, on a real GPU")
	flag.Parse()
	executable, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	build := filepath.Dir(executable)
	options := cluster.Options{
		Build: build, Source: filepath.Dir(build), GPU: *gpu, ExtraPath: os.Getenv("PATH"),
		Progress: func(text string) { fmt.Println("   …", text) },
	}
	if *users != "" {
		options.UserNames = strings.Split(*users, ",")
	}
	os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
		return tell(ctx, home, options, *python)
	}))
}

func tell(ctx context.Context, home cluster.Home, options cluster.Options, python string) int {
	begin := time.Now()
	s := &story{ctx: ctx, colour: isTerminal(os.Stdout)}
	s.title("A private Slurm cluster comes up")
	s.say("munged, MariaDB, slurmdbd, slurmctld and slurmd, all real, in %s.", home)
	c, err := cluster.Start(ctx, home, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	s.c = c
	s.one, s.two = c.Users[0], c.Users[1]
	if c.Simulated() {
		s.say("No NVIDIA GPU here: the node has %d simulated H200s of %d MiB.", len(c.GPUs()), c.GPUs()[0])
	} else {
		s.say("The node has %d NVIDIA GPUs, the first of %d MiB.", len(c.GPUs()), c.GPUs()[0])
	}
	s.say("Up after %.1f s. Users: %s (uid %d) and %s (uid %d).", time.Since(begin).Seconds(),
		s.one.Name, s.one.UID, s.two.Name, s.two.UID)

	for _, part := range []func(){s.nodes, s.slice, func() { s.pytorch(python) }, s.neighbours, s.share, s.refusals, s.accounting} {
		if ctx.Err() == nil {
			part()
		}
	}
	stop, cancel := context.WithTimeout(context.Background(), cluster.GraceToStop)
	defer cancel()
	c.Stop(stop)
	if ctx.Err() != nil {
		fmt.Println("\ndemo: ended before its time; everything it started is being removed")
		return 130
	}
	s.title("Done")
	if len(s.problems) > 0 {
		for _, problem := range s.problems {
			fmt.Println("NOT AS IT SHOULD BE:", problem)
		}
		s.logs()
		return 1
	}
	s.say("All of it was checked while it ran (%d checks), in %.0f s.", s.checks, time.Since(begin).Seconds())
	s.say("`make cluster` keeps the same cluster up to play with.")
	return 0
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
}
