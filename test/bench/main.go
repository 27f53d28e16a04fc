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
	only := flag.String("only", "", "measure only what has this in its name; throughput: jobs a second, on a cluster of its own")
	nodes := flag.Int("nodes", 16, "of the cluster that -only throughput measures")
	flag.Parse()
	executable, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	build := filepath.Dir(executable)
	os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
		b := &bench{build: build, rounds: *rounds}
		if err := b.run(ctx, home, *nodes, *only); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	}))
}

// section is one measurement, or some that belong together.
type section struct {
	name string
	run  func(context.Context) error
}

func (b *bench) run(ctx context.Context, home cluster.Home, nodes int, only string) error {
	options := cluster.Options{Build: b.build, Source: filepath.Dir(b.build), GPU: "sim", CPUs: 512, ExtraPath: os.Getenv("PATH"),
		Progress: func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }}
	sections := b.sections()
	if only == throughputOnly {
		sections = []section{{"throughput of jobs", b.throughput}}
		// Where one slurmd begins several jobs at once, the pipe to a prolog gets into the extern step of another job; slurmd then
		// waits for a prolog until that other job has ended, and two of them for each other (22.05.8, with /bin/true as well).
		options.NodeCount, options.CPUs = nodes, 1
		if !home.InPlace() { // config.yaml stands at its usual place: no shell script need name it
			options.Prolog, options.Epilog = home.Program("vgpu-prolog"), home.Program("vgpu-epilog")
		}
	}
	c, err := cluster.Start(ctx, home, options)
	if err != nil {
		return err
	}
	defer c.Stop(context.WithoutCancel(ctx))
	b.cluster = c
	for _, s := range sections {
		if !strings.Contains(s.name, only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "bench: measuring", s.name)
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.print()
	return nil
}

// sections are those that one node is enough for.
func (b *bench) sections() []section {
	return []section{
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
	}
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
