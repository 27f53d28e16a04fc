// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// run is one run of this program.
type run struct {
	cluster *cluster.Cluster
	build   string
	random  *rand.Rand
	every   time.Duration
	atMost  time.Duration
	marks   string // the folder in which each job leaves when it began and ended
}

// script writes down when it begins and ends, each in one step, so that whoever reads never sees a part.
const script = `#!/bin/bash
date +%%s.%%N > %[1]s/.$SLURM_JOB_ID.begun; mv %[1]s/.$SLURM_JOB_ID.begun %[1]s/$SLURM_JOB_ID.begun
sleep $1
date +%%s.%%N > %[1]s/.$SLURM_JOB_ID.ended; mv %[1]s/.$SLURM_JOB_ID.ended %[1]s/$SLURM_JOB_ID.ended
`

// lone jobs are run alone, to know what Slurm itself takes.
const lone = 5

func (r *run) do(ctx context.Context, home cluster.Home, count int) (good bool, err error) {
	c, err := cluster.Start(ctx, home, cluster.Options{Build: r.build, Source: filepath.Dir(r.build), GPU: "sim", SlicesPerGPU: 40,
		Progress: func(text string) { fmt.Fprintln(os.Stderr, "fragmentation:", text) }})
	if err != nil {
		return false, err
	}
	defer c.Stop(context.WithoutCancel(ctx))
	r.cluster = c
	if err := r.prepare(); err != nil {
		return false, err
	}
	starting, leaving, err := r.overhead(ctx)
	if err != nil {
		return false, err
	}
	var jobs []*job
	for range count {
		j := mix(r.random)
		if err := r.submit(ctx, c.Users[len(jobs)%len(c.Users)], j); err != nil {
			return false, err
		}
		jobs = append(jobs, j)
		time.Sleep(time.Duration(r.random.ExpFloat64() * float64(r.every))) // this is when jobs come, nothing is waited for
	}
	if err := r.rest(ctx, jobs); err != nil {
		return false, err
	}
	return report(jobs, starting, leaving), nil
}

func (r *run) prepare() error {
	if err := os.Mkdir(r.marks, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(r.marks, 0o1777); err != nil {
		return err
	}
	for _, u := range r.cluster.Users {
		if err := os.WriteFile(filepath.Join(u.Home, "job.sh"), fmt.Appendf(nil, script, r.marks), 0o755); err != nil {
			return err
		}
	}
	return nil
}

var submitted = regexp.MustCompile(`Submitted batch job (\d+)`)

func (r *run) submit(ctx context.Context, u cluster.User, j *job) error {
	j.submitted = time.Now()
	result := r.cluster.Run(ctx, u, fmt.Sprintf("sbatch -o /dev/null -t 1 --gres=vgpu:%d --vgpu-mem=%d --vgpu-cores=%d job.sh %.1f",
		j.slices, j.mib, j.percent, j.seconds))
	found := submitted.FindStringSubmatch(result.Stdout)
	if found == nil {
		return fmt.Errorf("%s", result)
	}
	j.id = found[1]
	return nil
}

// overhead is what a job takes that has the node to itself: until it begins, and until it is gone after its end.
func (r *run) overhead(ctx context.Context) (starting, leaving time.Duration, err error) {
	for range lone {
		j := &job{mib: 1000, slices: 1, seconds: 0.1}
		if err := r.submit(ctx, r.cluster.Users[0], j); err != nil {
			return 0, 0, err
		}
		if err := r.rest(ctx, []*job{j}); err != nil {
			return 0, 0, err
		}
		starting += j.begun.Sub(j.submitted) / lone
		leaving += time.Since(j.ended) / lone
	}
	return starting, leaving, nil
}

// rest waits until no job is left, and reads what became of them.
func (r *run) rest(ctx context.Context, jobs []*job) error {
	begin := time.Now()
	var left string
	for {
		result := r.cluster.Run(ctx, r.cluster.Root(), "squeue -h -o '%i %T %r'")
		if result.Code == 0 {
			left = result.Stdout
			if left == "" {
				break
			}
		}
		if time.Since(begin) > r.atMost || ctx.Err() != nil {
			return fmt.Errorf("not at rest after %v: %.500s\n%s", time.Since(begin).Round(time.Second), left, r.logs())
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, j := range jobs {
		text := r.cluster.Run(ctx, r.cluster.Root(), "scontrol -o show job "+j.id).Stdout
		for field := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "JobState":
				j.state = value
			case "Restarts":
				n, _ := strconv.Atoi(value)
				j.came = n + 1
			}
		}
		if j.state != "COMPLETED" {
			continue
		}
		var err error
		if j.begun, err = r.mark(j.id + ".begun"); err != nil {
			return err
		}
		if j.ended, err = r.mark(j.id + ".ended"); err != nil {
			return err
		}
	}
	return nil
}

// logs are the end of what the node's side says, which goes away with the folder.
func (r *run) logs() string {
	var all strings.Builder
	for _, path := range []string{"vgpu-spool/n1/waiting.json", "log/vgpu.log", "log/slurmd-n1.log"} {
		text, err := os.ReadFile(r.cluster.Home.Path(path))
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&all, "%s:\n%s\n", path, text[max(0, len(text)-20000):])
	}
	return all.String()
}

func (r *run) mark(name string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(r.marks, name))
	if err != nil {
		return time.Time{}, err
	}
	seconds, fraction, _ := strings.Cut(strings.TrimSpace(string(text)), ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read %s: %w", name, err)
	}
	ns, err := strconv.ParseInt(fraction, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read %s: %w", name, err)
	}
	return time.Unix(s, ns), nil
}
