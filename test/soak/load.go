// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// work is what a phase did.
type work struct {
	took               time.Duration // until the last was submitted
	submitted, resumed int
	requeued           map[string]bool // by hand; by raw id
	killed             map[string]int
}

// script has each run leave a file of its own, with a line when it begins and one when it ends.
const script = `#!/bin/bash
f=%[1]s/$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
echo "begin $SLURMD_NODENAME $SLURM_ARRAY_JOB_ID $1" >> $f
sleep %[2]s
[ "$1" != step ] || srun nvidia-smi -L > /dev/null
[ "$1" != fill ] || vgpu-fill > /dev/null
echo end >> $f
`

func (s *soak) keepBusy(ctx context.Context, of load) work {
	w := work{requeued: make(map[string]bool)}
	for _, u := range s.cluster.Users {
		path := filepath.Join(u.Home, "soak.sh")
		if err := os.WriteFile(path, fmt.Appendf(nil, script, s.runs, of.sleep), 0o755); err != nil {
			panic(err) // a folder of the cluster's own
		}
	}
	began, lastRequeue, lastTold := time.Now(), time.Now(), time.Now()
	killed := make(chan map[string]int, 1)
	killing, stop := context.WithCancel(ctx)
	defer stop()
	if of.kill > 0 {
		go func() { killed <- s.killMany(killing, of.kill) }()
	}
	for ctx.Err() == nil && (w.submitted < of.jobs || time.Since(began) < of.length) {
		w.submitted += s.submitAll(ctx, s.wanted(ctx, of, w.submitted))
		if time.Since(lastRequeue) > 5*time.Second {
			lastRequeue = time.Now()
			s.requeueOne(ctx, w.requeued)
		}
		if of.kill > 0 {
			w.resumed += s.heal(ctx)
		}
		if of.jobs > 0 && time.Since(lastTold) > time.Minute {
			lastTold = time.Now()
			fmt.Fprintf(os.Stderr, "soak: %d of %d jobs submitted, %.1f a second\n", w.submitted, of.jobs, float64(w.submitted)/time.Since(began).Seconds())
		}
	}
	w.took = time.Since(began)
	if stop(); of.kill > 0 {
		w.killed = <-killed
	}
	return w
}

// order is a job, or an array, that a user is to hand in.
type order struct {
	user    cluster.User
	jobs    int
	command string
}

// wanted is what keeps enough jobs waiting, of those that are still to come.
func (s *soak) wanted(ctx context.Context, of load, submitted int) (orders []order) {
	for _, u := range s.cluster.Users {
		waiting := strings.Count(s.cluster.Run(ctx, s.cluster.Root(), "squeue -h -r -u "+u.Name+" -o %i").Stdout, "\n")
		for ; waiting < of.waiting && (of.jobs == 0 || submitted < of.jobs); waiting++ {
			o := s.draw(u, of.kinds)
			orders = append(orders, o)
			submitted += o.jobs
		}
	}
	return orders
}

// submitAll hands them in, some at once, and says how many jobs these are.
func (s *soak) submitAll(ctx context.Context, orders []order) int {
	var submitted atomic.Int64
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, o := range orders {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			if result := s.cluster.Run(ctx, o.user, o.command); result.Code != 0 {
				fmt.Fprintln(os.Stderr, "soak:", result)
				return
			}
			submitted.Add(int64(o.jobs))
		})
	}
	group.Wait()
	return int(submitted.Load())
}

const atOnce = 4

// draw makes one up.
func (s *soak) draw(u cluster.User, kinds int) order {
	jobs, options, argument := 1, "", ""
	switch s.random.IntN(kinds) {
	case 0, 10, 11, 12, 13: // no vgpu
	case 1:
		jobs = 2 + s.random.IntN(6)
		options = fmt.Sprintf("-a 1-%d%%%d --gres=vgpu:1 --vgpu-mem=%d", jobs, 1+s.random.IntN(4), 1000*(1+s.random.IntN(60)))
	case 2:
		jobs = 2 + s.random.IntN(4)
		options = fmt.Sprintf("-a 1-%d --gres=vgpu:1 --vgpu-mem=%d%%", jobs, 20+s.random.IntN(40))
	case 3:
		options = fmt.Sprintf("--gres=vgpu:2 --vgpu-mem=%d", 500+s.random.IntN(5000))
	case 4:
		options, argument = "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=20", "step"
	case 5:
		options, argument = "--gres=vgpu:1 --vgpu-mem=2000", "fill"
	default:
		options = fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d --vgpu-place=%s", 1000+s.random.IntN(80000), [...]string{"pack", "spread"}[s.random.IntN(2)])
	}
	// A job whose batch step's slurmstepd was killed but not its extern step's runs for Slurm until its time limit.
	return order{user: u, jobs: jobs, command: "sbatch -o /dev/null -t 1 " + options + " soak.sh " + argument}
}

// requeueOne sends a running job back, as its user may.
func (s *soak) requeueOne(ctx context.Context, requeued map[string]bool) {
	running := strings.Split(strings.TrimSpace(s.cluster.Run(ctx, s.cluster.Root(), "squeue -h -r -t R -o '%i %A'").Stdout), "\n")
	name, id, found := strings.Cut(running[s.random.IntN(len(running))], " ")
	if found && s.cluster.Run(ctx, s.cluster.Root(), "scontrol requeue Incomplete "+name).Code == 0 {
		requeued[id] = true
	}
}

// heal does what an administrator does after a prolog or an epilog was killed: Slurm drains the node and holds
// the job.
func (s *soak) heal(ctx context.Context) (n int) {
	root := s.cluster.Root()
	for node := range strings.FieldsSeq(s.cluster.Run(ctx, root, "sinfo -h -N -t drain,drained,draining,down -o %N").Stdout) {
		if s.cluster.Run(ctx, root, "scontrol update nodename="+node+" state=resume").Code == 0 {
			n++
		}
	}
	for line := range strings.Lines(s.cluster.Run(ctx, root, "squeue -h -r -t PD -o '%i %r'").Stdout) {
		job, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(reason, "eld") && s.cluster.Run(ctx, root, "scontrol release "+job).Code == 0 { // JobHeldAdmin, "launch failed requeued held"
			n++
		}
	}
	return n + s.endOrphans()
}

const (
	restTime   = 5 * time.Minute  // bounds how long the cluster may take to come to rest
	sweepEvery = 15 * time.Second // vgpud's part, as it is every five minutes on a node
	// More than slurmctld gives a job to begin, and more than the 30 s after which it looks at time limits: with 15 s some jobs of 24.11.5
	// were never over, as if each reconfiguration had it count anew.
	askEvery = 45 * time.Second
)

// rest waits until no job is left and no record waits, and returns how long that took.
func (s *soak) rest(ctx context.Context, killed bool) (time.Duration, error) {
	begin := time.Now()
	asked, swept := begin, begin
	var last string
	for time.Since(begin) < restTime && ctx.Err() == nil {
		if killed && time.Since(asked) > askEvery {
			// A node tells of its jobs when it registers: so slurmctld hears of those whose slurmstepds were all killed.
			s.cluster.Run(ctx, s.cluster.Root(), "scontrol reconfigure")
			asked = time.Now()
		}
		if killed && time.Since(swept) > sweepEvery {
			for _, node := range s.cluster.Nodes { // a killed epilog tells no waiting job of the room it left
				s.cluster.Run(ctx, s.cluster.Root(), s.tool(node, "sweep"))
			}
			swept = time.Now()
		}
		s.heal(ctx)
		if last = s.cluster.Run(ctx, s.cluster.Root(), "squeue -h -o '%i %T %r'").Stdout; last == "" {
			waiting, _ := filepath.Glob(s.cluster.Home.Path("vgpu-spool", "*", "usage", "*.json"))
			if len(waiting) == 0 {
				took := time.Since(begin)
				if err := s.sweep(ctx); err != nil {
					return took, err
				}
				return took, s.lookAgain(ctx)
			}
			last = fmt.Sprint(len(waiting), " records wait")
			for _, node := range s.cluster.Nodes { // vgpud's part: a killed reporter is not started again by itself
				s.cluster.Run(ctx, s.cluster.Root(), s.tool(node, "records --flush"))
			}
		}
		time.Sleep(time.Second)
	}
	return 0, fmt.Errorf("not at rest after %v: %.500s", restTime, last)
}

// sweep is vgpud's: what is left is a minute old by then.
func (s *soak) sweep(ctx context.Context) error {
	time.Sleep(61 * time.Second)
	for range 2 { // what a sweep finds may be reported after it
		for _, node := range s.cluster.Nodes {
			for _, command := range []string{"sweep", "records --flush"} {
				if result := s.cluster.Run(ctx, s.cluster.Root(), s.tool(node, command)); result.Code != 0 {
					return fmt.Errorf("%s", result)
				}
			}
		}
	}
	return nil
}

// forgotten is longer than slurmctld keeps a job that has ended (MinJobAge), and than it takes to purge it.
const forgotten = 8 * time.Minute

// lookAgain is vgpud's part as well: rows that slurmctld may write again, as 24.11 has when it was reconfigured above, are looked at when
// it has forgotten their jobs.
func (s *soak) lookAgain(ctx context.Context) error {
	for begin := time.Now(); ; time.Sleep(5 * time.Second) {
		left := 0
		for _, node := range s.cluster.Nodes {
			records, _ := filepath.Glob(s.cluster.Home.Path("vgpu-spool", node, "backfill", "*.json"))
			if left += len(records); len(records) == 0 {
				continue
			}
			if result := s.cluster.Run(ctx, s.cluster.Root(), s.tool(node, "records --flush --backfill-after 0s")); result.Code != 0 {
				return fmt.Errorf("%s", result)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Since(begin) > forgotten {
			return fmt.Errorf("%d records wait for slurmctld to forget their jobs", left)
		}
	}
}

func (s *soak) tool(node, command string) string {
	return "vgpuctl --config " + s.cluster.ConfigPath() + " --node " + node + " " + command
}
