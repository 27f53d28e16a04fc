// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// A user has his processes stop in the middle of launches, or with locks and leases on all that he owns. Root's programs, which hold
// the node's lock, do not wait for any of it, nor does a neighbour on the same GPU.
func TestAttemptsToHoldUpTheNode(t *testing.T) {
	needStrict(t)
	begin(t)
	locks := `perl -e 'use Fcntl qw(:DEFAULT :flock); for (qw(ledger groups)) { my $path = "` + runDir("pages") + `/$ENV{SLURM_JOB_ID}/$_";
			open my $f, "<", $path or die; flock $f, LOCK_EX or die; $ENV{LEASE} && (fcntl $f, 1024, F_RDLCK or die); push @f, $f }
			open my $g, ">", "locked"; close $g; kill STOP => $$' & until [ -e locked ]; do sleep 0.1; done; `
	for _, tc := range []struct{ name, script string }{
		// The kernel gives no lease on a file that somebody writes, and CUDA none of its calls where it cannot write the ledger.
		{"in launches", `for i in 1 2; do vgpu-busy --each 1000 --until never > busy$i & busy="$busy $!"; done
			until [ -s busy1 ] && [ -s busy2 ]; do sleep 0.1; done; ` + locks + `kill -STOP $busy; `},
		{"with leases", "export LEASE=1; " + locks},
	} {
		t.Run(tc.name, func(t *testing.T) { heldUp(t, tc.script) })
	}
}

func heldUp(t *testing.T, script string) {
	t.Helper()
	stopped := filepath.Join(one.Home, "stopped")
	t.Cleanup(func() { _ = os.Remove(stopped); _ = os.RemoveAll(filepath.Join(one.Home, "held")) })
	job := submit(t, one, onFirstGPU(t)+" --vgpu-cores=30",
		"mkdir -p held && cd held && rm -f * || exit 1\n"+script+"touch ../stopped; while :; do sleep 1; done")
	until(t, "a job that is stopped", 30*time.Second, func() error {
		_, err := os.Stat(stopped)
		return err
	})
	began := time.Now()
	if out := strings.TrimSpace(ok(t, two, "srun "+onFirstGPU(t)+" "+seen).Stdout); out != "3000" {
		t.Errorf("a neighbour sees %s", out)
	}
	ok(t, root, tool("n1", "status"))
	ok(t, root, tool("n1", "set "+job+" --mem 2000"))
	nodeIsUp(t)
	ok(t, root, "scancel "+job)
	until(t, "the end of the job's slices", 60*time.Second, func() error {
		for _, s := range stateSlices(t) {
			if fmt.Sprint(s.Job) == job {
				return fmt.Errorf("it holds %+v", s)
			}
		}
		return nil
	})
	t.Logf("all that took %v", time.Since(began).Round(time.Second))
}

// Slurm calls a job that its user stops STOPPED, and not RUNNING; and what scontrol prints of a job its texts can imitate.
func TestAttemptsToEscapeTheAudit(t *testing.T) {
	begin(t)
	cancelling(t)
	bystander, _ := holding(t, two, "--gres=vgpu:1 --vgpu-mem=1000")
	slicesOf(t, bystander)
	forged := "x\nJobId=" + bystander + " JobName=y UserId=" + two.Name + "(1) JobState=COMPLETED JOB_GRES=(null)"
	for _, tc := range []struct {
		name string
		hide func(t *testing.T, job string)
	}{
		{"stopped", func(t *testing.T, job string) { ok(t, one, "scancel --batch --signal=STOP "+job) }},
		{"under another job's texts", func(t *testing.T, job string) {
			if result := run(t, one, "scontrol update jobid="+job+" comment='"+forged+"'"); result.Code == 0 {
				t.Errorf("a text that imitates scontrol's output is taken for a job that runs: %s", result)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job, _ := holding(t, one, "--gres=vgpu:1 --vgpu-mem=1000")
			slicesOf(t, job)
			until(t, "job "+job+" to have begun", 60*time.Second, func() error { // stopped before that, it is one that Slurm cannot kill
				if out := output(t, one, job); !strings.Contains(out, "started") {
					return fmt.Errorf("it has said %q", out)
				}
				return nil
			})
			outside(t, one, booked(job)+onGPU(otherGPU(t, job)))
			tc.hide(t, job)
			logged(t, "is cancelled", "job="+job)
			awaitState(t, job, "CANCELLED")
		})
	}
	if now := state(t, bystander); now != "RUNNING" {
		t.Errorf("another user's job is %s", now)
	}
}

// slurmd itself starts a login shell for these options, before and outside of any step. It is not held, as SECURITY.md says.
func TestALoginShellOfSlurmdsIsNotHeld(t *testing.T) {
	needStrict(t)
	begin(t)
	profile, found := filepath.Join(one.Home, ".bash_profile"), filepath.Join(one.Home, "login.out")
	if err := os.WriteFile(profile, []byte("[ -e "+found+" ] || { : >"+found+"; "+fillHere()+" >"+found+" 2>&1; echo end >>"+found+"; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = os.Remove(profile), os.Remove(found) })
	job := submit(t, one, "--export=NONE --gres=vgpu:1 --vgpu-mem=3000", "true")
	awaitEnd(t, job)
	out, err := os.ReadFile(found)
	if err != nil {
		t.Skipf("slurmd's su starts no login shell of theirs here: %v", err)
	}
	if got := verdict(t, string(out)); got != open {
		t.Errorf("%s, want %s:\n%s", got, open, out)
	}
}

// A job that goes on without a node that it has lost holds nothing there when the node is back, also where no epilog came.
func TestANodeThatAJobHasLostIsFree(t *testing.T) {
	begin(t)
	sweeper := impatient(t)
	cfg, err := config.Load(c.ConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	sweeper.Config, sweeper.Node = cfg.ForNode("n2"), "n2"
	sweeper.Store.Dir = sweeper.Config.Run()
	sweep := func(known string) int {
		t.Helper()
		sweeper.Controller = slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: time.Minute, Node: known}
		swept, err := sweeper.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return swept.Slices
	}
	job, release := holding(t, one, "-p all -N2 --no-kill --gres=vgpu:1 --vgpu-mem=100000")
	slicesOf(t, job)
	until(t, "a running job", 30*time.Second, func() error {
		if output(t, one, job) == "" {
			return fmt.Errorf("it is %s", state(t, job))
		}
		return nil
	})
	restore := script(t, c.Epilog, "#!/bin/sh\nexit 0\n")
	ok(t, root, "scontrol update NodeName=n2 State=DOWN Reason=lost")
	until(t, "the job to be on one node", 60*time.Second, func() error {
		if list := shown(t, job, "NodeList"); !strings.HasPrefix(list, "n1") {
			return fmt.Errorf("it is on %s", list)
		}
		return nil
	})
	run(t, root, "scontrol update NodeName=n2 State=RESUME") // if its slurmd was not quicker
	until(t, "no step of the job on the node that it lost", 60*time.Second, func() error {
		live, err := slurm.LiveJobs(sweeper.Config.Slurm.SlurmdSpoolDir, "n2")
		if len(live) > 0 {
			return fmt.Errorf("%v", live)
		}
		return err
	})
	restore()
	if n := sweep(""); n != 0 {
		t.Errorf("of a job that runs %d slices are gone where nobody knows the node's name", n)
	}
	if n := sweep("n2"); n != 1 {
		t.Errorf("%d slices are free on the node that the job has lost", n)
	}
	if now := state(t, job); now != "RUNNING" || len(slicesOf(t, job)) != 1 {
		t.Errorf("the job itself is %s", now)
	}
	release()
	finish(t, one, job)
}
