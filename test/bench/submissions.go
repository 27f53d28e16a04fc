// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// A round is so many submissions with the script and as many without; four rounds are 4,000 in all.
const (
	submissionsEach  = 500
	submissionRounds = 4
)

// submissions measures what job_submit.lua adds to a submission in slurmctld, by slurmctld's own count of the time that it spent
// on them (sdiag), with the script and without it in turns.
func (b *bench) submissions(ctx context.Context) error {
	path := b.cluster.Home.Path("etc", "slurm.conf")
	with, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var without []string
	for line := range strings.Lines(string(with)) {
		if !strings.HasPrefix(line, "JobSubmitPlugins") {
			without = append(without, line)
		}
	}
	var ours, baseline []time.Duration
	for range submissionRounds {
		for _, turn := range []struct {
			conf  []byte
			times *[]time.Duration
		}{{with, &ours}, {[]byte(strings.Join(without, "")), &baseline}} {
			took, err := b.submitMany(ctx, path, turn.conf)
			if err != nil {
				return errors.Join(err, os.WriteFile(path, with, 0o644))
			}
			*turn.times = append(*turn.times, took)
		}
	}
	if err := b.restartController(ctx, path, with); err != nil {
		return err
	}
	o, n := median(ours), median(baseline)
	b.add(row{fmt.Sprintf("a submission in slurmctld (%d)", 2*submissionRounds*submissionsEach), ms(o), "without job_submit.lua " + ms(n),
		"+" + ms(o-n), "≤ +0.2 ms", o-n <= 200*time.Microsecond})
	return nil
}

func (b *bench) restartController(ctx context.Context, path string, conf []byte) error {
	if err := os.WriteFile(path, conf, 0o644); err != nil {
		return err
	}
	if err := b.cluster.StopDaemon("slurmctld", syscall.SIGTERM); err != nil {
		return err
	}
	if err := b.cluster.StartDaemon("slurmctld"); err != nil {
		return err
	}
	return await(ctx, "slurmctld", func() error {
		if result := b.cluster.Run(ctx, b.cluster.Root(), "scontrol ping"); !strings.Contains(result.Stdout, "UP") {
			return errors.New(result.String())
		}
		return nil
	})
}

// submitMany is what slurmctld takes for one of many submissions of held jobs with a slice, under a slurm.conf.
func (b *bench) submitMany(ctx context.Context, path string, conf []byte) (time.Duration, error) {
	if err := b.restartController(ctx, path, conf); err != nil {
		return 0, err
	}
	line := fmt.Sprintf("seq %d | xargs -P 4 -I{} "+
		"sbatch -Q --hold --output=/dev/null --gres=%s --wrap true", submissionsEach, gresOfJob)
	root := b.cluster.Root()
	if result := b.cluster.Run(ctx, root, "sdiag --reset"); result.Code != 0 {
		return 0, errors.New(result.String())
	}
	if result := b.cluster.Run(ctx, b.cluster.Users[0], line); result.Code != 0 {
		return 0, errors.New(result.String())
	}
	said := b.cluster.Run(ctx, root, "sdiag")
	took, err := averageOf(said.Stdout, "REQUEST_SUBMIT_BATCH_JOB", submissionsEach)
	if err != nil {
		return 0, err
	}
	if result := b.cluster.Run(ctx, root, "scancel --state=PENDING --user="+b.cluster.Users[0].Name); result.Code != 0 {
		return 0, errors.New(result.String())
	}
	return took, nil
}

// averageOf finds in sdiag's output how long one message of a kind took, and that so many came.
func averageOf(sdiag, message string, want int) (time.Duration, error) {
	for line := range strings.Lines(sdiag) {
		name, rest, ok := strings.Cut(line, "count:")
		if !ok || !strings.Contains(name, message+" ") {
			continue
		}
		count, err := number(rest)
		if err != nil {
			return 0, err
		}
		if int(count) != want {
			return 0, fmt.Errorf("sdiag counts %.0f of %d %s", count, want, message)
		}
		_, rest, _ = strings.Cut(rest, "ave_time:")
		us, err := number(rest)
		return time.Duration(us * 1e3), err
	}
	return 0, fmt.Errorf("sdiag says nothing of %s: %s", message, sdiag)
}
