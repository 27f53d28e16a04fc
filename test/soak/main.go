// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command vgpu-soak keeps a private cluster of two nodes busy with the jobs of two users, first undisturbed and
// then while prologs, epilogs, slurmstepds, tasks and reporters are killed at random, and says after each phase
// whether every run was accounted once, in its own row, and nothing is left. It is started from where `make build`
// put it and needs root. With -scale so many jobs go through so many nodes, once, with kill -9. With -audited one node has short jobs that use its GPUs instead, and `vgpuctl audit` looks
// all the time. The exit code is 1 if anything was not as it must be.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// soak is one run of this program.
type soak struct {
	cluster *cluster.Cluster
	random  *rand.Rand
	runs    string // the folder in which each run of each job leaves its file
	began   time.Time
	bad     int
	keep    string // where logs and records go if something was not as it must be; "": nowhere
}

// load is what a phase puts on the cluster.
type load struct {
	length  time.Duration // how long jobs are submitted; 0: until there were so many
	jobs    int
	waiting int           // jobs of a user that wait or run at once: enough that the nodes are never idle
	kinds   int           // of jobs, of those that submit knows
	sleep   string        // of a job, in the words of bash
	kill    time.Duration // a process is killed every so often; 0: never
}

// What two nodes are kept busy with, and what is put through many.
var (
	soaking = load{waiting: 25, kinds: 10, sleep: "$(( $RANDOM % 3 )).$(( $RANDOM % 10 ))"}
	scaling = load{waiting: 120, kinds: 17, sleep: "0.$(( $RANDOM % 10 ))", kill: time.Second}
)

func main() {
	seconds := flag.Int("seconds", 180, "how long each phase submits jobs")
	chaos := flag.Bool("chaos", true, "a second phase, with kill -9")
	audited := flag.Int("audited", 0, "instead: so many short jobs on one node, audited all the time; is there an alarm?")
	scale := flag.Int("scale", 0, "instead: so many jobs, through -nodes nodes, with kill -9")
	nodes := flag.Int("nodes", 2, "of the cluster, which are all on this machine")
	cpus := flag.Int("cpus", 0, "jobs that Slurm puts on a node at once; 0: 64")
	keep := flag.String("keep", "", "a new folder for logs, usage records and what sacct says, if something was not as it must be")
	seed := flag.Uint64("seed", 0, "of the choices; 0: another one each time")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	executable, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	build := filepath.Dir(executable)
	os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
		s := &soak{random: rand.New(rand.NewPCG(*seed, 0)), runs: home.Path("runs"), keep: *keep}
		fmt.Fprintln(os.Stderr, "soak: seed", *seed)
		work := func() error { return s.phases(ctx, time.Duration(*seconds)*time.Second, *chaos) }
		switch {
		case *audited > 0:
			work, *nodes = func() error { return s.audited(ctx, *audited) }, 1
		case *scale > 0:
			scaling.jobs = *scale
			work = func() error { return s.phase(ctx, fmt.Sprintf("%d nodes, with kill -9", *nodes), scaling) }
		}
		if err := s.run(ctx, home, build, *nodes, *cpus, work); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 1
		}
		return min(s.bad, 1)
	}))
}

func (s *soak) run(ctx context.Context, home cluster.Home, build string, nodes, cpus int, work func() error) error {
	c, err := cluster.Start(ctx, home, cluster.Options{Build: build, Source: filepath.Dir(build), GPU: "sim", NodeCount: nodes, CPUs: cpus, SlicesPerGPU: 20,
		Progress: func(text string) { fmt.Fprintln(os.Stderr, "soak:", text) }})
	if err != nil {
		return err
	}
	defer c.Stop(context.WithoutCancel(ctx))
	s.cluster = c
	if err := os.Mkdir(s.runs, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(s.runs, 0o1777); err != nil {
		return err
	}
	return work()
}

func (s *soak) phases(ctx context.Context, length time.Duration, chaos bool) error {
	undisturbed := soaking
	undisturbed.length = length
	if err := s.phase(ctx, "undisturbed", undisturbed); err != nil || !chaos {
		return err
	}
	killed := undisturbed
	killed.kill = 200 * time.Millisecond
	return s.phase(ctx, "with kill -9", killed)
}

// phase puts a load on the cluster, lets it come to rest, and judges what is there then.
func (s *soak) phase(ctx context.Context, name string, of load) error {
	fmt.Fprintln(os.Stderr, "soak:", name)
	before, kill := s.mounts(), of.kill > 0
	s.began = time.Now()
	work := s.keepBusy(ctx, of)
	drained, err := s.rest(ctx, kill)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	v := verdict{chaos: kill}
	v.count("jobs submitted", work.submitted)
	v.say("  a second, until the last had ended and was accounted", fmt.Sprintf("%.1f", float64(work.submitted)/(work.took+drained).Seconds()))
	v.count("requeued by hand", len(work.requeued))
	for _, victim := range victims {
		if kill {
			v.count("killed: "+victim.what, work.killed[victim.what])
		}
	}
	v.count("nodes resumed, jobs released, orphans of extern steps ended", work.resumed)
	v.say("seconds until the last job had ended and was accounted", fmt.Sprintf("%.0f", drained.Seconds()))
	if err := s.judgeRuns(ctx, &v, work.submitted, work.requeued); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.judgeRemains(ctx, &v, before)
	v.print(name, time.Since(s.began))
	s.bad += v.bad
	if v.bad > 0 && s.keep != "" {
		return s.keepAll(ctx)
	}
	return nil
}

// keepAll is for who wants to know why: the cluster is gone when this program ends.
func (s *soak) keepAll(ctx context.Context) error {
	from := s.cluster.Home
	result := s.cluster.Run(ctx, s.cluster.Root(), fmt.Sprintf("mkdir %[1]s && cp -a %[2]s %[3]s %[1]s && sacct -a -D -X -P -S %[4]s -o JobIDRaw,JobID,State,Submit,Start,End,NodeList,AdminComment > %[1]s/sacct",
		s.keep, from.Path("log"), from.Path("vgpu-spool"), s.began.UTC().Format("2006-01-02T15:04:05")))
	if result.Code != 0 {
		return fmt.Errorf("keep what there is: %s", result)
	}
	fmt.Fprintln(os.Stderr, "soak: logs and records are in", s.keep)
	return nil
}

// verdict is the table of a phase.
type verdict struct {
	chaos bool
	rows  [][3]string
	bad   int
}

func (v *verdict) say(what, value string)   { v.rows = append(v.rows, [3]string{what, value}) }
func (v *verdict) count(what string, n int) { v.say(what, fmt.Sprint(n)) }
func (v *verdict) none(what string, n int)  { v.must(what, fmt.Sprint(n), n == 0) }
func (v *verdict) noneOf(what string, s []string) {
	text := fmt.Sprint(len(s))
	if len(s) > 0 {
		text += fmt.Sprintf(": %.400s", fmt.Sprint(s[:min(len(s), 8)]))
	}
	v.must(what, text, len(s) == 0)
}

func (v *verdict) must(what, value string, met bool) {
	word := "met"
	if !met {
		word = "MISSED"
		v.bad++
	}
	v.rows = append(v.rows, [3]string{what, value, word})
}

func (v *verdict) print(name string, took time.Duration) {
	fmt.Printf("\n%s, %.0f s in all\n\n", name, took.Seconds())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range v.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", row[2], row[0], row[1])
	}
	w.Flush()
}
