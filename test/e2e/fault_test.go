// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	nodestate "github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sweep"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// script replaces slurmd's prolog or epilog until the test ends, or until restore is called.
func script(t *testing.T, path, text string) (restore func()) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text []byte) {
		// Replaced, not rewritten: slurmd may be about to run it.
		if err := os.WriteFile(path+".new", text, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte(text))
	restore = func() { write(before) }
	t.Cleanup(restore)
	return restore
}

func program(name string) string {
	return c.Home.Program("vgpu-"+name) + " --config " + c.ConfigPath()
}

// killedThenRun starts a program, kills it after up to 30 ms, and then runs it as if nothing was.
func killedThenRun(name string) string {
	return "#!/bin/bash\n" + program(name) + " & sleep 0.0$((RANDOM % 3))$((RANDOM % 10)); kill -9 $! 2>/dev/null; wait\nexec " + program(name) + "\n"
}

func twice(name string) string {
	return "#!/bin/bash\n" + program(name) + " && " + program(name) + "\n"
}

func TestProgramsKilledOrRunTwice(t *testing.T) {
	for _, tc := range []struct{ name, prolog, epilog string }{
		{"prolog killed", killedThenRun("prolog"), ""},
		{"epilog killed", "", killedThenRun("epilog")},
		{"both twice", twice("prolog"), twice("epilog")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin(t)
			if tc.prolog != "" {
				script(t, c.Prolog, tc.prolog)
			}
			if tc.epilog != "" {
				script(t, c.Epilog, tc.epilog)
			}
			var jobs []string
			for i := range 12 {
				jobs = append(jobs, submit(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", 1000+i), seen))
			}
			for i, job := range jobs {
				if out := finish(t, one, job); strings.TrimSpace(out) != fmt.Sprint(1000+i) {
					t.Errorf("job %s saw %s", job, out)
				}
			}
			for _, job := range jobs {
				if u := awaitUsage(t, job, 90*time.Second); len(u.VGPU.Nodes["n1"]) != 1 {
					t.Errorf("AdminComment of job %s: %+v", job, u)
				}
			}
		})
	}
}

func TestProgramsForAnUnknownJob(t *testing.T) {
	begin(t)
	job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	slicesOf(t, job)
	before := ok(t, root, "cat "+runDir("state.json")).Stdout
	for _, name := range []string{"prolog", "epilog"} {
		ok(t, root, fmt.Sprintf("SLURMD_NODENAME=n1 SLURM_JOB_ID=999999 SLURM_JOB_UID=%d SLURM_JOB_GID=%d %s", one.UID, one.GID, program(name)))
	}
	if after := ok(t, root, "cat "+runDir("state.json")).Stdout; after != before {
		t.Errorf("the state changed from %s to %s", before, after)
	}
	release()
	finish(t, one, job)
}

func TestSlurmdRestartKeepsSlices(t *testing.T) {
	begin(t)
	job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	before := slicesOf(t, job)
	if err := c.StopDaemon("n1", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.StartDaemon("n1"); err != nil {
		t.Fatal(err)
	}
	if out := strings.TrimSpace(ok(t, two, "srun --gres=vgpu:1 --vgpu-mem=2000 "+seen).Stdout); out != "2000" {
		t.Errorf("a job after the restart sees %s", out)
	}
	if after := slicesOf(t, job); len(after) != 1 || after[0] != before[0] {
		t.Errorf("slices before %+v, after %+v", before, after)
	}
	if out := strings.TrimSpace(ok(t, one, "srun --overlap --jobid="+job+" "+seen).Stdout); out != "3000" {
		t.Errorf("a step of the old job sees %s", out)
	}
	release()
	finish(t, one, job)
}

// impatient takes away at once what belongs to nothing, without the minute in which nobody is in doubt.
func impatient(t *testing.T) sweep.Sweeper {
	t.Helper()
	cfg, err := config.Load(c.ConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.ForNode("n1")
	bootID, err := inventory.BootID()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", c.Home.Path("etc", "slurm.conf"))
	log := hclog.NewNullLogger()
	return sweep.Sweeper{Config: cfg, Node: "n1", Store: nodestate.Of(cfg, bootID, log), Log: log,
		Controller: slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: time.Minute}}
}

// aMinuteAgo is when all of this happened, and when somebody last looked for it: what is younger is left alone.
func aMinuteAgo(t *testing.T, job string, files []string) {
	t.Helper()
	store, then := impatient(t).Store, time.Now().Add(-sweep.Grace-time.Second)
	tx, err := store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.End()
	tx.Change(func(s *nodestate.Slice) {
		if fmt.Sprint(s.Job) == job {
			s.Since = nodestate.MillisOf(then)
		}
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{"../" + filepath.Base(store.Dir.PassLock())}, files...) {
		if err := os.Chtimes(filepath.Join(store.Dir.Jobs(), path), then, then); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSlicesOfALostEpilogComeBack(t *testing.T) {
	begin(t)
	// Programs that other tests killed leave temporary files, which would be counted below.
	if _, err := impatient(t).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	restore := script(t, c.Epilog, "#!/bin/sh\nexit 0\n")
	lost := submit(t, one, "--gres=vgpu:2 --vgpu-mem=140000 --vgpu-cores=100", "true")
	finish(t, one, lost)
	plain := batch(t, one, "", "echo $SLURM_JOB_ID")
	restore()
	if held := slicesOf(t, lost); len(held) != 2 {
		t.Fatalf("slices of the lost job: %+v", held)
	}
	want := []string{lost, strings.TrimSpace(plain) + ".none"}
	if left := jobFolders(t); !slices.Equal(left, want) {
		t.Fatalf("left are %v, want %v", left, want)
	}
	// A sweep of vgpud's that comes now would take away a part of it before doctor has looked.
	passLock, err := trusted.Lock(t.Context(), impatient(t).Store.Dir.PassLock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { passLock.Close() })
	aMinuteAgo(t, lost, want)
	until(t, "doctor to say so", 60*time.Second, func() error {
		said := run(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 doctor").Stdout
		if !strings.Contains(said, "remains: 2 slices, 1 job folder, 1 mark and 0 temporary files of jobs that have ended; jobs that hold slices: ["+lost+"]") {
			return fmt.Errorf("%s", said)
		}
		return nil
	})
	passLock.Close()
	// All of it is a minute old: the next prolog takes it away, whatever its job wants, or finds vgpud at it.
	ok(t, one, "srun true")
	until(t, "all of it to go", 30*time.Second, func() error {
		held, folders := stateSlices(t), jobFolders(t)
		if len(held) > 0 || slices.ContainsFunc(want, func(name string) bool { return slices.Contains(folders, name) }) {
			return fmt.Errorf("left are the slices %+v and the folders %v", held, folders)
		}
		return nil
	})
	if u := awaitUsage(t, lost, 60*time.Second); len(u.VGPU.Nodes["n1"]) != 2 {
		t.Errorf("AdminComment of the lost job: %+v", u)
	}
}

// TestASweepTakesNothingFromJobsThatStart sweeps again and again, without the minute in which nobody is in
// doubt, while jobs start and end.
func TestASweepTakesNothingFromJobsThatStart(t *testing.T) {
	begin(t)
	sweeper := impatient(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sweeps := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			if _, err := sweeper.Sweep(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("sweep: %v", err)
			}
		}
		sweeps <- n
	}()
	var jobs []string
	for i := range 24 {
		options := fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", 1000+i)
		if i%3 == 2 {
			options = ""
		}
		jobs = append(jobs, submit(t, one, options, "sleep 0.3; "+seen+"; srun "+seen))
	}
	for i, job := range jobs {
		out := strings.Fields(finish(t, one, job))
		want := fmt.Sprint(1000 + i)
		if i%3 == 2 {
			want = fmt.Sprint(gpuMiB)
		}
		if len(out) < 2 || slices.ContainsFunc(out, func(mib string) bool { return mib != want }) {
			t.Errorf("job %s saw %v, want %s", job, out, want)
		}
	}
	cancel()
	if n := <-sweeps; n < 10 {
		t.Errorf("only %d sweeps", n)
	}
}

func TestRebootFreesEverything(t *testing.T) {
	if c.Home.InPlace() {
		t.Skip("the kernel's boot_id can only be replaced in a mount namespace, which is forbidden here")
	}
	begin(t)
	restore := script(t, c.Epilog, "#!/bin/sh\nexit 0\n")
	lost := submit(t, one, "--gres=vgpu:1 --vgpu-mem=140000", "true")
	finish(t, one, lost)
	slicesOf(t, lost)
	restore()
	const bootID = "/proc/sys/kernel/random/boot_id"
	other := c.Home.Path("boot_id")
	if err := os.WriteFile(other, []byte("11111111-2222-3333-4444-555555555555\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, bootID, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(bootID, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		// What the other "boot" left is void in this one.
		ok(t, two, "srun --gres=vgpu:1 --vgpu-mem=100M true")
	}()
	if out := strings.TrimSpace(ok(t, two, "srun --gres=vgpu:1 --vgpu-mem=140000 "+seen).Stdout); out != "140000" {
		t.Errorf("a job after the reboot sees %s", out)
	}
	if _, err := os.Stat(runDir("jobs", lost)); !os.IsNotExist(err) {
		t.Errorf("the folder of a job of the last boot: %v", err)
	}
}

func TestUsageSurvivesSlurmdbdBeingDown(t *testing.T) {
	begin(t)
	if err := c.StopDaemon("slurmdbd", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", "vgpu-fill")
	wantLimit(t, finish(t, one, job), 3000)
	until(t, "the usage record", 30*time.Second, func() error {
		names, _ := filepath.Glob(c.Home.Path("vgpu-spool", "n1", "usage", job+".*"))
		if len(names) != 1 {
			return fmt.Errorf("records of job %s: %v", job, names)
		}
		return nil
	})
	if err := c.StartDaemon("slurmdbd"); err != nil {
		t.Fatal(err)
	}
	u := awaitUsage(t, job, 120*time.Second)
	if d := u.VGPU.Nodes["n1"]; len(d) != 1 || d[0].MemMiB != 3000 || d[0].PeakMiB < 2000 {
		t.Errorf("AdminComment: %+v", u)
	}
	until(t, "an empty spool", 30*time.Second, func() error {
		if names, _ := filepath.Glob(c.Home.Path("vgpu-spool", "n1", "usage", job+".*")); len(names) > 0 {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}

func TestSixtyFourJobsAtOnce(t *testing.T) {
	begin(t)
	const jobs = 64
	gate := filepath.Join(one.Home, "gate64")
	defer os.Remove(gate)
	id := submit(t, one, fmt.Sprintf("--array=1-%d -o array-%%a.out --gres=vgpu:1 --vgpu-mem=4000", jobs),
		seen+"; while [ ! -e "+gate+" ]; do sleep 0.5; done")
	until(t, "64 slices", 120*time.Second, func() error {
		if n := len(stateSlices(t)); n != jobs {
			return fmt.Errorf("%d slices", n)
		}
		return nil
	})
	used := map[string]int{}
	for _, s := range stateSlices(t) {
		used[s.Device] += s.MemMiB
	}
	for device, mib := range used {
		if mib > gpuMiB {
			t.Errorf("%s: %d MiB are granted of %d", device, mib, gpuMiB)
		}
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, "all of them to end", 120*time.Second, func() error {
		states := strings.Fields(run(t, root, "squeue -h -t all -r -o %T -j "+id).Stdout)
		done := 0
		for _, s := range states {
			if s == "COMPLETED" {
				done++
			}
		}
		if done != jobs {
			return fmt.Errorf("%d of %d are completed: %v", done, jobs, states)
		}
		return nil
	})
	for i := 1; i <= jobs; i++ {
		name := filepath.Join(one.Home, fmt.Sprintf("array-%d.out", i))
		if out, _ := os.ReadFile(name); string(out) != "4000\n" {
			t.Errorf("task %d saw %s", i, out)
		}
		os.Remove(name)
	}
}
