// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command vgpu-bench measures what slurm-vgpu costs on this machine, each figure against a baseline
// taken in turns with it in the same run, and prints a table. It is started from where `make build`
// put it and needs root, because it brings up a private cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// row is one line of the table.
type row struct {
	what     string
	ours     string
	baseline string
	cost     string
	target   string
	met      bool
}

// bench is what the measurements share.
type bench struct {
	cluster *cluster.Cluster
	build   string
	rounds  int
	rows    []row
}

func main() {
	rounds := flag.Int("rounds", 31, "runs of each program; medians are reported")
	only := flag.String("only", "", "measure only what has this in its name")
	flag.Parse()
	executable, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	build := filepath.Dir(executable)
	os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
		if err := run(ctx, home, build, *rounds, *only); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	}))
}

func run(ctx context.Context, home cluster.Home, build string, rounds int, only string) error {
	options := cluster.Options{Build: build, Source: filepath.Dir(build), GPU: "sim", CPUs: 512, ExtraPath: os.Getenv("PATH"),
		Progress: func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }}
	c, err := cluster.Start(ctx, home, options)
	if err != nil {
		return err
	}
	defer c.Stop(context.WithoutCancel(ctx))
	b := &bench{cluster: c, build: build, rounds: rounds}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"prolog and epilog", b.prologAndEpilog},
		{"concurrent placements", b.concurrent},
		{"placement cost", b.placement},
		{"sampling", b.sampling},
		{"looks at a full node", b.looks},
		{"records into the database", b.records},
		{"submissions in slurmctld", b.submissions},
		{"plugin in sbatch", b.plugin},
		{"plugin in slurmstepd", b.stepd},
		{"a program without CUDA", b.preload},
		{"intercepted calls", b.calls},
	} {
		if !strings.Contains(step.name, only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "bench: measuring", step.name)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	b.print()
	return nil
}

func (b *bench) add(r row) { b.rows = append(b.rows, r) }

func (b *bench) print() {
	fmt.Printf("%s, %d cores, %s, simulated GPUs, medians of %d\n\n", cpuName(), runtime.NumCPU(), kernel(), b.rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tours\tbaseline\tcost\ttarget\t")
	for _, r := range b.rows {
		verdict := "met"
		switch {
		case r.target == "":
			verdict = ""
		case !r.met:
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.ours, r.baseline, r.cost, r.target, verdict)
	}
	w.Flush()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func cpuName() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(name), ":"))
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	data, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(data))
}
