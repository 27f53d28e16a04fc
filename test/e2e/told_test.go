// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSomethingTrueIsToldOfEachJob: of one that waits, for whatever, that runs elsewhere, that has whole GPUs or nothing, and of an array.
func TestSomethingTrueIsToldOfEachJob(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t) // on n1
	elsewhere, releaseElsewhere := holding(t, one, "-p all -w n2 --gres=vgpu:1 --vgpu-mem=3000")
	whole, releaseWhole := holding(t, one, "-p whole --gpus=1")
	plain, releasePlain := holding(t, one, "-p all -w n2")
	for _, job := range []string{elsewhere, whole, plain} {
		awaitState(t, job, "RUNNING")
	}
	held := submit(t, one, "-H --gres=vgpu:1 --vgpu-mem=3000", "true")
	later := submit(t, one, "--begin=now+2hours --gres=vgpu:1 --vgpu-mem=3000", "true")
	busy := submit(t, one, "-p all -w n2 --exclusive --gres=vgpu:1 --vgpu-mem=3000", "true")
	tasks := submit(t, one, "-H --array=0-4%2 --gres=vgpu:1 --vgpu-mem=3000", "true")
	room := submit(t, two, "--gres=vgpu:1 --vgpu-mem=60000 -w n1", "true")
	awaitWaiting(t, room, "1")
	for _, c := range []struct{ job, want string }{
		{elsewhere, "it runs on n2: ask there (srun --jobid=" + elsewhere + " --overlap vgpuctl COMMAND " + elsewhere + ")"},
		{whole, "with whole GPUs, whose use is not counted"},
		{plain, "it asked for no vgpu"},
		{held, "its user holds it (scontrol release) (JobHeldUser)"},
		{later, "it is to start at "},
		{busy, "(Resources)"},
		{tasks, tasks + " is an array of 5 tasks, and this is " + tasks + "_[0-4"},
		{room, "n1: no GPU has 60000 MiB free: the most is 43771 MiB"},
	} {
		for _, command := range []string{"explain", "report"} {
			want := strings.ReplaceAll(c.want, "COMMAND", command)
			until(t, command+" of job "+c.job, 60*time.Second, func() error { // the database is a moment late
				told := run(t, one, tool("n1", command+" "+c.job))
				said := told.Stdout + told.Stderr
				if !strings.Contains(said, want) || strings.Contains(said, "106751") || strings.Contains(said, "1970") || strings.Contains(said, "running for") {
					return fmt.Errorf("want %q: %s", want, told)
				}
				return nil
			})
		}
	}
	for _, job := range []string{held, later, busy, tasks, room} {
		ok(t, root, "scancel "+job)
	}
	for _, release := range []func(){releaseOne, releaseOther, releaseElsewhere, releaseWhole, releasePlain} {
		release()
	}
	until(t, "the report of a cancelled job", 60*time.Second, func() error {
		if told := run(t, one, tool("n1", "report "+held)); !strings.Contains(told.Stderr, "before it began") {
			return fmt.Errorf("%s", told)
		}
		return nil
	})
}

// TestACancelledJobIsOneRunWhileItEnds: it was two, one cancelled and one running, until its epilog had released the slices.
func TestACancelledJobIsOneRunWhileItEnds(t *testing.T) {
	begin(t)
	gate := filepath.Join(openDir(t), "gate")
	ok(t, root, "touch "+gate+"; cp "+c.Epilog+" "+c.Epilog+".real")
	restore := script(t, c.Epilog, "#!/bin/sh\nwhile [ -e "+gate+" ]; do sleep 0.1; done\nexec "+c.Epilog+".real\n")
	defer func() {
		restore()
		ok(t, root, "rm "+gate)
	}()
	job, _ := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	awaitState(t, job, "RUNNING")
	slicesOf(t, job) // Slurm says RUNNING before the prolog
	ok(t, one, "scancel "+job)
	until(t, "the database to know that the job was cancelled", 60*time.Second, func() error {
		if got := account(t, job, "State"); !strings.HasPrefix(got, "CANCELLED") {
			return errors.New(got)
		}
		return nil
	})
	if got := state(t, job); got != "COMPLETING" {
		t.Fatalf("it is %s", got)
	}
	told := ok(t, one, tool("n1", "report "+job)).Stdout
	if strings.Contains(told, "run 2") || strings.Contains(told, "running") || !strings.Contains(told, ": cancelled by ") || !strings.Contains(told, "3000 MiB") {
		t.Errorf("while its epilog runs it is told:\n%s", told)
	}
	for _, command := range []string{"explain", "report"} {
		if told := run(t, one, tool("n1", command+" 99999")); told.Code != 1 || !strings.Contains(told.Stderr, "neither slurmctld nor the accounting database has such a job") {
			t.Errorf("a job that there is not: %s", told)
		}
	}
}
