// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	launchRounds = 12
	launchMost   = 3 * time.Minute
	native       = "native"
	ours         = "ours"
)

// launch compares programs that are started with the library and without it by turns, in one job, and what they cost without a job.
func (t *trial) launch() []trialCase {
	cases := []trialCase{{"without a job", (*trial).launchWithoutJob}}
	for _, policy := range []string{"cap", "elastic"} {
		cases = append(cases, trialCase{"a job of 50, " + policy, func(t *trial) { t.launchInJob("--vgpu-cores=50 --vgpu-policy=" + policy) }})
	}
	return cases
}

// figureOf is how launches.c names what it prints.
var figureOf = []struct{ name, says string }{{"launch", "a launch, ns"}, {"graph", "a graph's launch, ns"},
	{"synchronise", "a synchronisation, ns"}, {"signals", "45,000 launches under signals, ms"}}

func (t *trial) launchWithoutJob() {
	program := t.launches()
	var said strings.Builder
	for range launchRounds {
		result := t.Cluster.Run(t.ctx, t.Users[0], t.gpus[0].Visible()+" "+program)
		if result.Code != 0 {
			panic(fmt.Errorf("launches: %s", result))
		}
		said.WriteString(native + " " + result.Stdout)
	}
	found := readLaunches(strings.Fields(said.String()))
	for _, f := range figureOf {
		t.row("without a job, "+f.says, fmt.Sprintf("%.1f", median(found[native][f.name])))
	}
}

// launchInJob has the library come by LD_PRELOAD alone, so that a program of the job can be without it; nobody is frozen for that.
func (t *trial) launchInJob(options string) {
	isolation := t.Isolation
	defer func() {
		t.Isolation, t.ExtraConfig = isolation, configuration
		must(0, t.WriteConfig())
	}()
	t.Isolation, t.ExtraConfig = "preload", configuration+"cheaters: log\n"
	must(0, t.WriteConfig())
	program := t.launches()
	script := fmt.Sprintf(`#!/bin/bash
grep -q libslurm-vgpu /proc/self/maps || { echo no library done; exit; }
for i in {1..%d}; do
	for how in $([ $((i %% 2)) = 0 ] && echo %s %s || echo %[3]s %[2]s); do
		echo $how $([ $how = %[3]s ] || unset LD_PRELOAD; %[4]s)
	done
done
echo done
`, launchRounds, native, ours, program)
	j := &job{}
	t.submitScript(j, want{options: options}.slice(), script)
	t.until("launches of the job", launchMost, func() bool { return strings.HasSuffix(j.says(), " done") })
	found := readLaunches(strings.Fields(j.says()))
	for _, f := range figureOf {
		a, b := found[native][f.name], found[ours][f.name]
		if len(a) != launchRounds || len(b) != launchRounds {
			panic(fmt.Errorf("launches: of %d rounds %d and %d are there: %s", launchRounds, len(a), len(b), j.says()))
		}
		ratio, off := ratioOf(a, b)
		t.row(options+", "+f.says, verdict(ratio <= 1+max(0.01, 2*off)), fmt.Sprintf("native %.1f, with the library %.1f: %.3f times, +- %.3f", median(a), median(b), ratio, off))
	}
}

func (t *trial) launches() string { return filepath.Join(t.programs, "launches") }

// readLaunches gives the values by who and figure.
func readLaunches(words []string) map[string]map[string][]float64 {
	found := map[string]map[string][]float64{native: {}, ours: {}}
	who := native
	for i, word := range words {
		if found[word] != nil {
			who = word
		} else if i > 0 {
			if value, err := strconv.ParseFloat(word, 64); err == nil {
				found[who][words[i-1]] = append(found[who][words[i-1]], value)
			}
		}
	}
	return found
}

// ratioOf is the median of the rounds' ratios, and its standard error.
func ratioOf(a, b []float64) (ratio, off float64) {
	var all []float64
	mean, squares := 0.0, 0.0
	for i := range a {
		all = append(all, b[i]/a[i])
		mean += all[i] / float64(len(a))
	}
	for _, r := range all {
		squares += (r - mean) * (r - mean)
	}
	n := float64(len(all))
	return median(all), 1.25 * math.Sqrt(squares/(n-1)/n)
}

// median of none is 0.
func median[T float64 | int64](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
