// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// auditScript uses GPUs in the ways of jobs, and leaves a file if it did. What holds memory does so for longer than the
// two looks of an audit, or for as short as can be.
const auditScript = `#!/bin/bash
case $1 in
hold) vgpu-fill --upto 500 --hold 1 ;;
burst) for i in 1 2 3 4 5 6; do vgpu-fill --upto 100; done ;;
killed) vgpu-fill --upto 500 --hold 9 & sleep 0.$(( $RANDOM %% 10 )); kill -9 $!; wait; vgpu-fill --upto 500 ;;
steps) srun vgpu-fill --upto 200; srun --vgpu-mem=1000 vgpu-fill --upto 200 --hold 1 ;;
several) for i in 1 2 3; do vgpu-fill --upto 300 --hold 1 & done; wait ;;
cancelled) vgpu-fill --upto 500 && : > %[1]s/$SLURM_JOB_ID; vgpu-fill --upto 500 --hold 9 & sleep 0.$(( $RANDOM %% 10 )); scancel $SLURM_JOB_ID; wait ;;
none) exit 0 ;;
esac > /dev/null
[ $? -ne 0 ] || : > %[1]s/$SLURM_JOB_ID
exit 0
`

var auditKinds = []string{"hold", "burst", "killed", "steps", "several", "cancelled", "none"}

// auditedJobs is how many jobs of a user wait or run at once: their processes start and end all the time.
const auditedJobs = 8

// audited has short jobs of two users on one node, as nodes of a private cluster share their simulated GPUs, and audits
// all the time: is one of them called a stray?
func (s *soak) audited(ctx context.Context, jobs int) error {
	fmt.Fprintln(os.Stderr, "soak: audited,", jobs, "jobs")
	s.began = time.Now()
	v := verdict{}
	found, err := s.auditSeesAStray(ctx)
	if err != nil {
		return err
	}
	v.must("before: a process of no job is found", fmt.Sprint(found), found)
	log := s.cluster.Home.Path("log", "vgpu.log")
	before, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the first job makes it
		return err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	alarms := make(chan []string, 1)
	var looks atomic.Int64
	go func() { alarms <- s.auditAlways(looking, &looks) }()
	submitted, cancelled := s.submitAudited(ctx, jobs)
	stop()
	raised := <-alarms
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	held, err := os.ReadDir(s.runs)
	if err != nil {
		return err
	}
	logged := bytes.Count(text[len(before):], []byte("stray use of a GPU"))
	v.count("jobs submitted", submitted)
	v.must("of these with memory of a GPU, more than half", fmt.Sprint(len(held)), len(held) > submitted/2)
	v.count("requeued or cancelled from outside", cancelled)
	v.must("audits, one for ten jobs at least", fmt.Sprint(looks.Load()), looks.Load() >= int64(submitted/10))
	v.noneOf("alarms", raised)
	v.none("alarms of audits that vgpud began", logged)
	v.print("audited", time.Since(s.began))
	s.bad += v.bad
	return nil
}

// auditAlways counts the looks, and keeps what was found or failed.
func (s *soak) auditAlways(ctx context.Context, looks *atomic.Int64) (alarms []string) {
	for ctx.Err() == nil {
		result := s.cluster.Run(ctx, s.cluster.Root(), s.tool(s.cluster.Nodes[0], "audit --json --apart 300ms"))
		if ctx.Err() != nil {
			break
		}
		looks.Add(1)
		if result.Code != 0 {
			alarms = append(alarms, result.String())
			fmt.Fprintln(os.Stderr, "soak:", result)
		}
	}
	return alarms
}

// submitAudited keeps both users at it until there were so many jobs and all have ended.
func (s *soak) submitAudited(ctx context.Context, jobs int) (submitted, disturbed int) {
	for _, u := range s.cluster.Users {
		if err := os.WriteFile(filepath.Join(u.Home, "audited.sh"), fmt.Appendf(nil, auditScript, s.runs), 0o755); err != nil {
			panic(err) // a folder of the cluster's own
		}
	}
	requeued := make(map[string]bool)
	for last := time.Now(); ctx.Err() == nil; {
		left := 0
		for _, u := range s.cluster.Users {
			waiting := strings.Count(s.cluster.Run(ctx, s.cluster.Root(), "squeue -h -r -u "+u.Name+" -o %i").Stdout, "\n")
			for left += waiting; waiting < auditedJobs && submitted < jobs; waiting++ {
				submitted += s.submitOneAudited(ctx, u)
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Since(last) > 5*time.Second && submitted < jobs {
			last = time.Now()
			s.requeueOne(ctx, requeued)
		}
	}
	return submitted, len(requeued)
}

func (s *soak) submitOneAudited(ctx context.Context, u cluster.User) int {
	options := [...]string{"--gres=vgpu:1 --vgpu-mem=3000", "--gres=vgpu:1 --vgpu-mem=4000 --vgpu-cores=20", "--gres=vgpu:2 --vgpu-mem=3000"}[s.random.IntN(3)]
	kind := auditKinds[s.random.IntN(len(auditKinds))]
	if kind == "none" {
		options = ""
	}
	result := s.cluster.Run(ctx, u, "sbatch -o /dev/null -t 2 "+options+" audited.sh "+kind)
	if result.Code != 0 {
		fmt.Fprintln(os.Stderr, "soak:", result)
		return 0
	}
	return 1
}

// auditSeesAStray shows that it would say so.
func (s *soak) auditSeesAStray(ctx context.Context) (bool, error) {
	u := s.cluster.Users[0]
	holding, stop := context.WithCancel(ctx)
	stray := s.cluster.Command(holding, u, "exec vgpu-fill --quiet --upto 100 --hold-until never")
	if err := stray.Start(); err != nil {
		stop()
		return false, err
	}
	defer func() {
		stop()
		_ = stray.Wait() // it was killed
	}()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		result := s.cluster.Run(ctx, s.cluster.Root(), s.tool(s.cluster.Nodes[0], "audit --json --apart 300ms"))
		var report struct {
			Strays []struct{ Kind, User string }
		}
		if err := json.Unmarshal([]byte(result.Stdout), &report); err != nil {
			return false, fmt.Errorf("%w: %s", err, result)
		}
		if len(report.Strays) == 1 && report.Strays[0].Kind == "no-job" && report.Strays[0].User == u.Name {
			return true, nil
		}
	}
	return false, nil
}
