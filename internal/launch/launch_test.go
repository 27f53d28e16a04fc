// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

const (
	job     = 42
	library = "/usr/lib/slurm-vgpu/libslurm-vgpu.so"
)

// preparedJob is a run folder as vgpu-prolog leaves it for a job with two slices.
func preparedJob(t *testing.T, change func(*grant.Grant)) Step {
	t.Helper()
	dir := rundir.Dir(t.TempDir())
	uid := uint32(os.Getuid())
	g := grant.Grant{
		Job: job, UID: uid, Isolation: grant.IsolationStrict, Library: library, DeviceDir: "/dev",
		Slices: []grant.Slice{
			{Device: "GPU-a", Index: 0, Minor: 0, MemMiB: 3000, SMPercent: 30},
			{Device: "GPU-b", Index: 1, Minor: 4, MemMiB: 3000, SMPercent: 30},
		},
		MaskMinors: []device.Minor{2, 3}, Policy: request.PolicyCap, NodeGPUsMiB: []int64{143771, 143771},
	}
	if change != nil {
		change(&g)
	}
	if err := os.MkdirAll(filepath.Join(dir.Job(job), "steps"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.Ledger(job), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := grant.Write(dir.Grant(job), g); err != nil {
		t.Fatal(err)
	}
	return Step{RunDir: dir, Job: job, Step: 0, UID: uid}
}

func TestPrepareStrict(t *testing.T) {
	step := preparedJob(t, nil)
	step.LDPreload = "/opt/own.so"
	got, err := Prepare(step)
	if err != nil {
		t.Fatal(err)
	}
	dir := step.RunDir.Step(job, "0")
	want := Plan{
		Ours:        true,
		Env:         []grant.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", Value: "GPU-a,GPU-b"}, {Name: "VGPU_STEP_DIR", Value: dir}},
		Strict:      true,
		StepDir:     dir,
		PreloadFile: filepath.Join(dir, "ld.so.preload"),
		Mask:        []string{"/dev/nvidia2", "/dev/nvidia3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPreparePreload(t *testing.T) {
	step := preparedJob(t, func(g *grant.Grant) { g.Isolation = grant.IsolationPreload })
	step.LDPreload = "/opt/own.so:" + library
	got, err := Prepare(step)
	if err != nil {
		t.Fatal(err)
	}
	last := got.Env[len(got.Env)-1]
	if want := (grant.EnvVar{Name: "LD_PRELOAD", Value: library + ":/opt/own.so"}); last != want {
		t.Errorf("got %v, want %v", last, want)
	}
	if got.Strict || got.Mask != nil {
		t.Errorf("preload isolation mounts nothing: got strict=%t, masks %v", got.Strict, got.Mask)
	}
}

func TestPrepareRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		grant func(*grant.Grant)
		step  func(*Step)
		want  string
	}{
		"the prolog's": {
			grant: func(g *grant.Grant) { g.Slices, g.Refusal = nil, "no GPU has 9000 MiB free" },
			want:  "no GPU has 9000 MiB free",
		},
		"another user's grant": {step: func(s *Step) { s.UID++ }, want: "uid"},
		"another job's grant":  {grant: func(g *grant.Grant) { g.Job = 43 }, want: "it is of job 43"},
		"bad option":           {step: func(s *Step) { s.Options = []Option{{"vgpu-mem", "3T"}} }, want: "--vgpu-mem=3T"},
		"unknown option":       {step: func(s *Step) { s.Options = []Option{{"vgpu-x", "3"}} }, want: "vgpu-x"},
		"more than the job":    {step: func(s *Step) { s.Options = []Option{{"vgpu-mem", "3001"}} }, want: "more than the job's slice"},
		"LD_PRELOAD cut": {
			grant: func(g *grant.Grant) { g.Isolation = grant.IsolationPreload },
			step:  func(s *Step) { s.LDPreloadCut = true },
			want:  "LD_PRELOAD",
		},
	} {
		t.Run(name, func(t *testing.T) {
			step := preparedJob(t, c.grant)
			if c.step != nil {
				c.step(&step)
			}
			plan, err := Prepare(step)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if plan.Ours {
				t.Error("got a plan beside the refusal")
			}
		})
	}
}

func TestPrepareWithoutGrant(t *testing.T) {
	dir := rundir.Dir(t.TempDir())
	if err := os.Mkdir(dir.Jobs(), 0o755); err != nil {
		t.Fatal(err)
	}
	step := Step{RunDir: dir, Job: job, Options: []Option{{"vgpu-mem", "3000"}}}
	if _, err := Prepare(step); err == nil || !strings.Contains(err.Error(), "--vgpu-mem") {
		t.Errorf("an option and no prolog: got %v, want an error that names the option", err)
	}
	if plan, err := Prepare(Step{RunDir: dir, Job: job}); err != nil || plan.Ours {
		t.Errorf("no option and no prolog: got %v and %v, want to leave the job alone", plan, err)
	}
	if err := os.WriteFile(dir.None(job), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	step.Wait = time.Hour // a job that is known to have no vgpu is not waited for
	if plan, err := Prepare(step); err != nil || plan.Ours {
		t.Errorf("no vgpu: got %v and %v, want to leave the job alone", plan, err)
	}
}

func TestPrepareWaitsForTheProlog(t *testing.T) {
	step := preparedJob(t, nil)
	late := step.RunDir.Grant(job)
	if err := os.Rename(late, late+".later"); err != nil {
		t.Fatal(err)
	}
	step.Wait = time.Minute
	go func() {
		time.Sleep(3 * pollEvery)
		_ = os.Rename(late+".later", late)
	}()
	if plan, err := Prepare(step); err != nil || !plan.Ours {
		t.Errorf("got %v and %v, want a plan", plan, err)
	}
}

func TestPrepareWaitsLongerForAPrologAtWork(t *testing.T) {
	step := preparedJob(t, nil)
	late := step.RunDir.Grant(job)
	if err := os.Rename(late, late+".later"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(step.RunDir.Pending(job), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	step.Wait = pollEvery
	if plan, err := Prepare(step); err == nil || !strings.Contains(err.Error(), "still at work") {
		t.Errorf("a prolog that never ends: got %v and %v, want a refusal", plan, err)
	}
	step.Wait = time.Minute / atWorkFactor
	go func() {
		time.Sleep(3 * pollEvery)
		_ = os.Rename(late+".later", late)
	}()
	if plan, err := Prepare(step); err != nil || !plan.Ours {
		t.Errorf("a prolog that ends: got %v and %v, want a plan", plan, err)
	}
}

// prologScript stands for vgpu-prolog in a script that slurmd never ran.
func prologScript(t *testing.T, step Step, body string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "prolog")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	command := grant.PrologCommand{Argv: []string{program, string(step.RunDir)}, Env: []string{"SLURMD_NODENAME=n1"}}
	if err := grant.WriteProlog(step.RunDir.Prolog(), command); err != nil {
		t.Fatal(err)
	}
}

func TestPrepareRunsAPrologThatSlurmdLeftOut(t *testing.T) {
	step := preparedJob(t, nil)
	late := step.RunDir.Grant(job)
	if err := os.Rename(late, late+".later"); err != nil {
		t.Fatal(err)
	}
	step.GID = 7
	step.Options = []Option{{"vgpu-mem", "1G"}}
	prologScript(t, step, `[ "$SLURMD_NODENAME $SLURM_JOB_GID $SPANK_VGPU_REQUEST" = "n1 7 mem=1024" ] && mv "$1/jobs/$SLURM_JOB_ID/grant.json.later" "$1/jobs/$SLURM_JOB_ID/grant.json"`)
	if plan, err := Prepare(step); err != nil || !plan.Ours {
		t.Errorf("got %v and %v, want a plan", plan, err)
	}
}

// A job must not run without limits because nobody knows what it holds.
func TestPrepareRefusesWhatNoPrologKnows(t *testing.T) {
	for name, body := range map[string]string{"the prolog says nothing": "exit 0", "the prolog fails": "exit 1"} {
		t.Run(name, func(t *testing.T) {
			step := preparedJob(t, nil)
			if err := os.Remove(step.RunDir.Grant(job)); err != nil {
				t.Fatal(err)
			}
			prologScript(t, step, body)
			if plan, err := Prepare(step); err == nil {
				t.Errorf("got %v, want a refusal", plan)
			}
		})
	}
	t.Run("anybody may write the prolog", func(t *testing.T) {
		step := preparedJob(t, nil)
		if err := os.Remove(step.RunDir.Grant(job)); err != nil {
			t.Fatal(err)
		}
		prologScript(t, step, "touch "+filepath.Join(string(step.RunDir), "ran"))
		command, err := grant.ReadProlog(step.RunDir.Prolog())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(command.Argv[0], 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := Prepare(step); err == nil {
			t.Error("want a refusal")
		}
		if isThere(filepath.Join(string(step.RunDir), "ran")) {
			t.Error("it ran")
		}
	})
}

func TestFinishTwice(t *testing.T) {
	step := preparedJob(t, nil)
	if _, err := Prepare(step); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Finish(step); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(step.RunDir.Step(job, "0")); !os.IsNotExist(err) {
			t.Errorf("the step's folder is still there: %v", err)
		}
	}
}
