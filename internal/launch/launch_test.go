// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
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
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
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
		Slices: []device.Slice{
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
	if err := os.MkdirAll(dir.Pages(job), 0o755); err != nil {
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
	guards := []grant.Guard{{Driver: "/usr/lib/libcuda.so.580", Guard: "/usr/lib/slurm-vgpu/libcuda-guard.so", Behind: "libcuda-slurm-vgpu.so"},
		{Driver: "/opt/libcuda.so.580", Guard: "/usr/lib/slurm-vgpu/libcuda-guard.so"}}
	step := preparedJob(t, func(g *grant.Grant) { g.Guards = guards })
	step.LDPreload = "/opt/own.so"
	step.Binds.Apptainer = "/data"
	got, err := Prepare(step)
	if err != nil {
		t.Fatal(err)
	}
	dir := step.RunDir.Step(job, "0")
	want := Plan{
		Ours:        true,
		Env:         append([]grant.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", Value: "0,1"}, {Name: "VGPU_STEP_DIR", Value: dir}}, step.Binds.env()...),
		Strict:      true,
		StepDir:     dir,
		PreloadFile: filepath.Join(dir, "ld.so.preload"),
		Library:     "/usr/lib/slurm-vgpu/libslurm-vgpu.so",
		Guards:      guards,
		PagesDir:    step.RunDir.Pages(step.Job),
		AllPages:    step.RunDir.AllPages(),
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

// The step of an srun that made its job comes with options that may be another component's.
// --vgpu-mem and --vgpu-cores are the first two options.
func TestPrepareWholeJob(t *testing.T) {
	step := preparedJob(t, nil)
	step.Options, step.WholeJob = request.Texts{"9000", "50"}, true
	got, err := Prepare(step)
	if err != nil {
		t.Fatal(err)
	}
	if want := (grant.EnvVar{Name: "CUDA_VISIBLE_DEVICES", Value: "0,1"}); got.Env[0] != want {
		t.Errorf("got %v, want %v", got.Env[0], want)
	}
}

func TestPrepareWithGRES(t *testing.T) {
	for _, tc := range []struct{ perNode, otherwise, want, masked, says string }{
		{perNode: "gres:vgpu:2,gres:gpumem:6000,gres:gpucores:60", want: "0,1"},
		{perNode: "gres/vgpu:1,gres/gpumem:1K", otherwise: "cpu:1,,", want: "0", masked: "/dev/nvidia4"},
		{perNode: "", want: "", masked: "/dev/nvidia0,/dev/nvidia4"},
		{perNode: "gres:gpu:1", want: "", masked: "/dev/nvidia0,/dev/nvidia4"},
		{perNode: "gres:vgpu:1,gres:gpumem:3001", says: "--gres=gpumem:3001: 3001 MiB for each of 1 slices are more than the job's slice of 3000 MiB"},
		{perNode: "gres:vgpu:1", otherwise: ",,cpu:1,gres/gpumem:5", says: "counted per node only"},
		{perNode: "gres:vgpu:9x", says: "GRES of the step"},
	} {
		step := preparedJob(t, func(g *grant.Grant) {
			g.MaskMinors, g.Entitlement = nil, request.Entitlement{Slices: 2, MemMiB: 6000, SMPercent: 60}
		})
		step.GRES = StepGRES{Known: true, PerNode: tc.perNode, Otherwise: tc.otherwise}
		got, err := Prepare(step)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q and %q: got %v, want an error with %q", tc.perNode, tc.otherwise, err, tc.says)
			}
			continue
		}
		if err != nil || got.Env[0].Value != tc.want || strings.Join(got.Mask, ",") != tc.masked {
			t.Errorf("%q: got %v, %v and masks %v, want %q and %q", tc.perNode, err, got.Env, got.Mask, tc.want, tc.masked)
		}
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
		"bad option":           {step: func(s *Step) { s.Options = request.Texts{"3T"} }, want: "--vgpu-mem=3T"},
		"more than the job":    {step: func(s *Step) { s.Options = request.Texts{"3001"} }, want: "more than the job's slice"},
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
	step := Step{RunDir: dir, Job: job, Options: request.Texts{"3000"}}
	if _, err := Prepare(step); err == nil || !strings.Contains(err.Error(), "asks for vgpu") {
		t.Errorf("an option and no prolog: got %v, want an error", err)
	}
	counted := Step{RunDir: dir, Job: job, GRES: StepGRES{Known: true, PerNode: "gres:vgpu:1"}}
	if _, err := Prepare(counted); err == nil || !strings.Contains(err.Error(), "asks for vgpu") {
		t.Errorf("a counted slice and no prolog: got %v, want an error", err)
	}
	counted.GRES.PerNode = "gres:gpu:1"
	if plan, err := Prepare(counted); err != nil || plan.Ours {
		t.Errorf("other GRES and no prolog: got %v and %v, want to leave the job alone", plan, err)
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
	step.Request = "mem=1024"
	prologScript(t, step, `[ "$SLURMD_NODENAME $SLURM_JOB_GID $SPANK_VGPU_REQUEST" = "n1 7 mem=1024" ] && mv "$1/jobs/$SLURM_JOB_ID/grant.json.later" "$1/jobs/$SLURM_JOB_ID/grant.json"`)
	if plan, err := Prepare(step); err != nil || !plan.Ours {
		t.Errorf("got %v and %v, want a plan", plan, err)
	}
}

// On a node that is full the prolog's word is all there is.
func TestPrepareBelievesWhatThePrologSays(t *testing.T) {
	for said, want := range map[string]string{
		"vgpu-prolog: no slices": "", "vgpu-prolog: refused: the node has no room": "the node has no room",
		"vgpu-prolog: no slices of bread": "says nothing", "vgpu-prolog: refused: ": "says nothing",
	} {
		step := preparedJob(t, nil)
		if err := os.Remove(step.RunDir.Grant(job)); err != nil {
			t.Fatal(err)
		}
		prologScript(t, step, "echo '"+said+"'")
		plan, err := Prepare(step)
		if plan.Ours || want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v and %v, want %q", said, plan, err, want)
		}
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
	for name, spoil := range map[string]func(program string) error{
		"anybody may write the prolog": func(program string) error { return os.Chmod(program, 0o777) },
		"its group may":                func(program string) error { return os.Chmod(program, 0o775) },
		"the prolog is another user's": func(program string) error { return os.Chown(program, 1, 0) },
		"the prolog is a link": func(program string) error {
			return errors.Join(os.Rename(program, program+".real"), os.Symlink(program+".real", program))
		},
	} {
		t.Run(name, func(t *testing.T) {
			step := preparedJob(t, nil)
			if err := os.Remove(step.RunDir.Grant(job)); err != nil {
				t.Fatal(err)
			}
			prologScript(t, step, "touch "+filepath.Join(string(step.RunDir), "ran"))
			command, err := grant.ReadProlog(step.RunDir.Prolog())
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(command.Argv[0]); err != nil {
				if os.Geteuid() != 0 {
					t.Skip("only root can give a file away")
				}
				t.Fatal(err)
			}
			if _, err := Prepare(step); !errors.Is(err, trusted.ErrUntrusted) {
				t.Errorf("got %v, want a refusal", err)
			}
			if isThere(filepath.Join(string(step.RunDir), "ran")) {
				t.Error("it ran")
			}
		})
	}
}

// TestARefusalIsFinalWhenItsPrologIsDone: before that the job may be about to go back into the queue, and would fail instead.
func TestARefusalIsFinalWhenItsPrologIsDone(t *testing.T) {
	step := preparedJob(t, func(g *grant.Grant) { g.Slices, g.Refusal = nil, "first" })
	step.Wait = time.Hour
	if err := os.WriteFile(step.RunDir.Pending(job), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	said := make(chan error)
	go func() {
		_, err := Prepare(step)
		said <- err
	}()
	g, err := grant.Read(step.RunDir.Grant(job))
	if err != nil {
		t.Fatal(err)
	}
	g.Refusal = "second"
	if err := grant.Write(step.RunDir.Grant(job), g); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(step.RunDir.Pending(job)); err != nil {
		t.Fatal(err)
	}
	if err := <-said; err == nil || err.Error() != "second" {
		t.Errorf("it did not wait for the prolog's end: %v", err)
	}
	// Not for one that never ends, nor where the job is on its way.
	if err := os.WriteFile(step.RunDir.Pending(job), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	g.Requeued = true
	if err := grant.Write(step.RunDir.Grant(job), g); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(step); err == nil || err.Error() != "second" {
		t.Errorf("requeued: %v", err)
	}
	g.Requeued, step.Wait = false, time.Millisecond
	if err := grant.Write(step.RunDir.Grant(job), g); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(step); err == nil || err.Error() != "second" {
		t.Errorf("at work for ever: %v", err)
	}
}
