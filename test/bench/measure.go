// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"time"
)

// contender is something that is run again and again. before prepares a run and is not timed.
type contender struct {
	name   string
	before func(round int) error
	run    func(round int) error
}

// inTurns runs the contenders one after the other, round after round, so that whatever else the
// machine does falls on all of them alike, and returns the median time of each. The first round
// warms caches and does not count.
func inTurns(rounds int, contenders ...contender) ([]time.Duration, error) {
	times := make([][]time.Duration, len(contenders))
	for round := range rounds + 1 {
		for i, c := range contenders {
			if c.before != nil {
				if err := c.before(round); err != nil {
					return nil, fmt.Errorf("prepare %s: %w", c.name, err)
				}
			}
			start := time.Now()
			err := c.run(round)
			took := time.Since(start)
			if err != nil {
				return nil, fmt.Errorf("run %s: %w", c.name, err)
			}
			if round > 0 {
				times[i] = append(times[i], took)
			}
		}
	}
	medians := make([]time.Duration, len(contenders))
	for i := range times {
		medians[i] = median(times[i])
	}
	return medians, nil
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// program runs a program with exactly this environment.
func program(env []string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w: %s", argv, err, out.String())
	}
	return nil
}
