// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command vgpu-fragmentation hands many jobs of mixed sizes to a private cluster with one node of two GPUs, and holds
// how long they waited against a plan that knows all of them, and how long each takes, beforehand. It is started from
// where `make build` put it and needs root. The exit code is 1 if a job failed or one waited too long.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

const (
	gpus   = 2
	gpuMiB = 143771
)

// job is one of the mix, and what became of it.
type job struct {
	mib, percent, slices int
	seconds              float64 // that its program takes

	id           string
	submitted    time.Time
	begun, ended time.Time
	state        string
	came         int // how often it was sent to the node
}

func main() {
	count := flag.Int("jobs", 200, "how many jobs")
	seed := flag.Uint64("seed", 1, "of the mix; 0: another one each time")
	every := flag.Duration("every", 100*time.Millisecond, "mean time between two submissions")
	rest := flag.Duration("rest", 15*time.Minute, "how long all jobs may take together")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	executable, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fragmentation:", err)
		os.Exit(1)
	}
	os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
		r := &run{build: filepath.Dir(executable), random: rand.New(rand.NewPCG(*seed, 0)), every: *every, atMost: *rest, marks: home.Path("marks")}
		fmt.Fprintln(os.Stderr, "fragmentation: seed", *seed)
		good, err := r.do(ctx, home, *count)
		if err != nil {
			fmt.Fprintln(os.Stderr, "fragmentation:", err)
		}
		if err != nil || !good {
			return 1
		}
		return 0
	}))
}

// mix draws a job. Three of four fit beside others; the rest needs most of a GPU, a GPU, or both.
func mix(random *rand.Rand) *job {
	j := &job{slices: 1, seconds: float64(15+random.IntN(46)) / 10}
	switch random.IntN(8) {
	case 0, 1, 2:
		j.mib = 1000 * (2 + random.IntN(28))
	case 3, 4:
		j.mib, j.percent = 1000*(10+random.IntN(50)), 10*(1+random.IntN(4))
	case 5:
		j.mib, j.percent = 5000, 40
	case 6:
		j.mib = 1000 * (70 + random.IntN(50))
	case 7:
		switch random.IntN(3) {
		case 0:
			j.mib, j.percent = 20000, 100
		case 1:
			j.mib, j.slices = 30000, 2
		default:
			j.mib, j.percent = 80000, 60
		}
	}
	return j
}
