// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command simulation plays a day of mixed slices on many nodes, without running anything, and tells what the choice of GPUs comes to:
// how much of them is granted, who waits how long, and how often a node that Slurm chose by counts has no GPU with room. The trace
// is made up, by a seed. The GPUs are chosen by internal/place, as the prolog does; slurmctld is made simple
// (docs/benchmarks.md has tables, and what was left out).
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

func main() {
	if err := play(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "simulation:", err)
		os.Exit(1)
	}
}

func play(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("simulation", flag.ContinueOnError)
	nodes := flags.Int("nodes", 1000, "how many nodes")
	gpus := flags.Int("gpus", 8, "how many GPUs each has")
	load := flags.Float64("load", 0.9, "what jobs ask for, of all GPUs, on average over a day")
	seed := flags.Uint64("seed", 1, "of the trace")
	asJSON := flags.Bool("json", false, "print JSON")
	picture := flags.String("svg", "", "draw a picture into this file")
	only := flags.String("only", "", "these policies by their numbers, from 0 on, as in 0,1; all if empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *nodes < 1 || *gpus < 4 || *load <= 0 {
		return errors.New("it takes one node, four GPUs and some load at least")
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	// The day before fills the cluster.
	from, until := int64(day), int64(2*day)
	jobs := submissions(rand.New(rand.NewPCG(*seed, 0)), *nodes**gpus, *load, until)
	fmt.Fprintf(os.Stderr, "simulation: %d jobs on %d nodes of %d GPUs, seed %d\n", len(jobs), *nodes, *gpus, *seed)
	results := make([]result, len(chosen))
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	for i, p := range chosen {
		group.Go(func() {
			turns <- struct{}{}
			began := time.Now()
			s := newSimulation(p, *nodes, *gpus, jobs, from, until)
			s.run()
			results[i] = s.result()
			results[i].Seconds = time.Since(began).Seconds()
			fmt.Fprintf(os.Stderr, "simulation: %s: %.1f s\n", p.name, results[i].Seconds)
			<-turns
		})
	}
	group.Wait()
	if *picture != "" {
		if err := drawTo(*picture, results); err != nil {
			return err
		}
	}
	if *asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	return table(out, results)
}

// choose picks policies by a list of their numbers.
func choose(list string) (chosen []policy, err error) {
	if list == "" {
		return policies, nil
	}
	for number := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n >= len(policies) {
			return nil, fmt.Errorf("-only=%s: %q is no policy: their numbers are 0 to %d", list, number, len(policies)-1)
		}
		chosen = append(chosen, policies[n])
	}
	return chosen, nil
}

// table prints a line for each policy, waits in minutes.
func table(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(t, "who chooses\tmemory granted\ttime granted\tmemory of no use\twaited: mean\tmedian\t90 %\tlongest\tlarge: mean\t90 %\t"+
		"in vain, per job\tat most\tfailed\tnot begun\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%.1f %%\t%.1f %%\t%.1f %%\t%.2f\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t%.1f\t%d\t%d\t%d\t\n", r.Policy, 100*r.Memory, 100*r.Time,
			100*r.NoUse, r.Waits.Mean, r.Waits.Median, r.Waits.Ninety, r.Waits.Longest, r.Large.Mean, r.Large.Ninety,
			float64(r.Refusals)/float64(max(1, r.Jobs)), r.Most, r.Failed, r.Unstarted)
	}
	return t.Flush()
}
