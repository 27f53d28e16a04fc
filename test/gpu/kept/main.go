// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command kept measures what vgpud keeps on a GPU: jobs of two users, through sbatch, on a private Slurm of its own. It is started by
// ../kept.sh; each line that it prints is a figure, beside what it should be.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// trialCase is what a part consists of; those of a part can be played in several calls.
type trialCase struct {
	name string
	play func(*trial)
}

type part struct {
	name  string
	says  string
	cases func(*trial) []trialCase
}

var parts = []part{
	{"smoke", "does it work here: two slices of 30 and 70, and that vgpud is there", (*trial).smoke},
	{"transcript", "the driver's calls, a line for each; the same on the simulated device", (*trial).transcript},
	{"costs", "what each call of vgpud's takes of a core", (*trial).costs},
	{"launch", "what a launch, a graph's, a synchronisation, and launches under signals cost: with the library and without", (*trial).launch},
	{"weights", "shares of elastic slices, by kinds of load", (*trial).weights},
	{"steps", "who waits for each step; jobs of many processes, half of them idle; ten contexts", (*trial).steps},
	{"latency", "requests, 25 a second, beside batches", (*trial).latency},
	{"caps", "caps, alone and beside others; who asks for less than its cap; vgpud killed each second", (*trial).caps},
	{"gate", "steps that may have less than their job, which the library holds in their programs", (*trial).gate},
	{"count", "GPU time by vgpud, by the GPU's counters and by counted kernels", (*trial).count},
	{"cheats", "what a neighbour of 40 % has beside who cheats, before 2 s have passed and after", (*trial).cheats},
	{"beside", "what ten slices cost others on the node, and vgpud's own time", (*trial).beside},
	{"kill", "programs killed by the hundred; vgpud killed each second, for --minutes; memory of the killed", (*trial).kill},
	{"nccl", "two GPUs, half of each, beside who has no cap (wants two GPUs, PyTorch)", (*trial).nccl},
}

func usage() {
	fmt.Fprintln(flag.CommandLine.Output(), `usage: kept.sh [--simulated] [--minutes N] [--seconds N] PART[:I/N]…
PART:I/N plays the I-th of N of its cases. parts:`)
	for _, p := range parts {
		fmt.Fprintf(flag.CommandLine.Output(), "  %-11s %s\n", p.name, p.says)
	}
	fmt.Fprintln(flag.CommandLine.Output(), "options:")
	flag.PrintDefaults()
}

// wanted is a part of which each count-th case is played, from the first on.
type wanted struct {
	part
	first, count int
}

func chosen(words []string) (found []wanted, err error) {
	for _, word := range words {
		w := wanted{first: 1, count: 1}
		name, share, shared := strings.Cut(word, ":")
		if shared {
			if n, _ := fmt.Sscanf(share, "%d/%d", &w.first, &w.count); n != 2 || w.first < 1 || w.first > w.count {
				return nil, fmt.Errorf("%q: a part, or PART:I/N with I from 1 to N", word)
			}
		}
		for _, p := range parts {
			if p.name == name {
				w.part = p
			}
		}
		if w.cases == nil {
			return nil, fmt.Errorf("there is no part %q; --help lists them", name)
		}
		found = append(found, w)
	}
	return found, nil
}

func (w wanted) picks(i int) bool { return i%w.count == w.first-1 }

func main() {
	flag.Usage = usage
	var o options
	flag.BoolVar(&o.simulated, "simulated", false, "on simulated GPUs: it shows that the script works, and its figures are the simulation's")
	flag.Float64Var(&o.minutes, "minutes", 3, "how long vgpud is killed each second, for `minutes`")
	flag.Float64Var(&o.seconds, "seconds", 8, "how long a measurement takes, in `seconds`")
	flag.Float64Var(&o.most, "most", 500, "no case of a part begins after so many `seconds`")
	flag.IntVar(&o.asked, "requests", 520, "how `many` requests of the latency class are measured")
	flag.IntVar(&o.kills, "kills", 1000, "how `many` programs are killed")
	flag.StringVar(&o.programs, "programs", ".", "`folder` of the tenants' programs, which kept.sh builds")
	flag.StringVar(&o.build, "build", "", "`folder` of what make build has made")
	flag.StringVar(&o.files, "files", "", "`folder` for logs")
	flag.Parse()
	wanted, err := chosen(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "kept.sh:", err)
		os.Exit(2)
	}
	if len(wanted) == 0 {
		usage()
		os.Exit(2)
	}
	os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
		if err := play(ctx, home, o, wanted); err != nil {
			fmt.Fprintln(os.Stderr, "kept.sh:", err)
			return 1
		}
		return 0
	}))
}

func play(ctx context.Context, home cluster.Home, o options, wanted []wanted) error {
	t, err := begin(ctx, home, o)
	if err != nil {
		return err
	}
	defer t.end()
	var stopped []string
	for _, w := range wanted {
		began, faults := time.Now(), gauge.Xids()
		t.part = w.name
		cases := w.cases(t)
		for i, one := range cases {
			if !w.picks(i) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if since := time.Since(began); since.Seconds() > o.most {
				t.row(one.name, "left out", fmt.Sprintf("%.0f s have passed", since.Seconds()))
				continue
			}
			if err := t.guarded(one); err != nil {
				t.row(one.name, "STOPPED", err.Error())
				stopped = append(stopped, w.name+": "+one.name)
			}
		}
		t.row("took", fmt.Sprintf("%.0f s", time.Since(began).Seconds()), verdict(gauge.Xids() == faults), fmt.Sprintf("%d more Xids", gauge.Xids()-faults))
	}
	if stopped != nil {
		return fmt.Errorf("stopped: %s", strings.Join(stopped, "; "))
	}
	return nil
}

// guarded plays a case. What cannot go on there panics with an error, and the case's jobs do not stay.
func (t *trial) guarded(one trialCase) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
		t.cancelAll()
	}()
	one.play(t)
	return nil
}

// row is one line of the table.
func (t *trial) row(what string, columns ...string) {
	line := fmt.Sprintf("| %s | %s | %s |", t.part, what, strings.Join(columns, " | "))
	fmt.Println(strings.Join(strings.Fields(line), " ")) // what programs say has ends of lines
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "MISSED"
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
