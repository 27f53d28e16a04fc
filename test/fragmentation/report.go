// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// waits are how long jobs waited, from the shortest.
type waits []time.Duration

func waitsOf(jobs []*job, began func(int) time.Time) waits {
	var all waits
	for i, j := range jobs {
		all = append(all, began(i).Sub(j.submitted))
	}
	slices.Sort(all)
	return all
}

func (w waits) at(part float64) time.Duration { return w[int(part*float64(len(w)-1))] }

func (w waits) mean() time.Duration {
	var sum time.Duration
	for _, one := range w {
		sum += one
	}
	return sum / time.Duration(len(w))
}

// report prints what became of the jobs beside what the plans say, and whether that is good.
func report(jobs []*job, starting, leaving time.Duration) bool {
	states, came, most := map[string]int{}, 0, 0
	var done []*job
	for _, j := range jobs {
		states[j.state]++
		came += j.came - 1
		most = max(most, j.came-1)
		if j.state == "COMPLETED" {
			done = append(done, j)
		}
	}
	fmt.Printf("\n%d jobs on %d GPUs: %v; put back %d times, one job at most %d times\n", len(jobs), gpus, states, came, most)
	if len(done) == 0 {
		return false
	}
	fmt.Printf("a job alone begins after %v and is gone %v after its end\n\n", starting.Round(time.Millisecond), leaving.Round(time.Millisecond))
	inOrder, overtaking := plan(done, starting, leaving, false), plan(done, starting, leaving, true)
	rows := []struct {
		name string
		waits
		end time.Time
	}{
		{"here", waitsOf(done, func(i int) time.Time { return done[i].begun }), end(done, func(i int) time.Time { return done[i].begun })},
		{"plan, in the order of submission", waitsOf(done, func(i int) time.Time { return inOrder[i] }), end(done, func(i int) time.Time { return inOrder[i] })},
		{"plan, later ones in gaps", waitsOf(done, func(i int) time.Time { return overtaking[i] }), end(done, func(i int) time.Time { return overtaking[i] })},
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "waited\tmean\tmedian\t90 %\tlongest\tall done after")
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t%.1f s\t%.1f s\t%.1f s\t%.1f s\t%.1f s\n", row.name, row.mean().Seconds(), row.at(0.5).Seconds(), row.at(0.9).Seconds(),
			row.at(1).Seconds(), row.end.Sub(done[0].submitted).Seconds())
	}
	w.Flush()
	later := 0
	var worst time.Duration
	for i, j := range done {
		if late := j.begun.Sub(inOrder[i]); late > 0 {
			later++
			worst = max(worst, late)
		}
	}
	fmt.Printf("\nlater than in the plan in order: %d of %d jobs, %.1f s at most\n", later, len(done), worst.Seconds())
	good := true
	must := func(what string, met bool) {
		word := "met"
		if !met {
			word, good = "MISSED", false
		}
		fmt.Printf("%-7s %s\n", word, what)
	}
	must("no job failed", len(done) == len(jobs))
	must("none waited longer than the longest in the plan in order", rows[0].at(1) <= rows[1].at(1))
	return good
}

// end is when the last job is done.
func end(jobs []*job, began func(int) time.Time) (last time.Time) {
	for i, j := range jobs {
		if at := began(i).Add(j.ended.Sub(j.begun)); at.After(last) {
			last = at
		}
	}
	return last
}
