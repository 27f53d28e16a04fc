// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// fragment fills both GPUs so far that 60000 MiB are free together, but on neither of them.
func fragment(t *testing.T) (releaseOne, releaseOther func()) {
	t.Helper()
	a, releaseOne := holding(t, one, "--gres=vgpu:1 --vgpu-mem=100000 --vgpu-place=spread")
	b, releaseOther := holding(t, one, "--gres=vgpu:1 --vgpu-mem=100000 --vgpu-place=spread")
	if x, y := slicesOf(t, a), slicesOf(t, b); x[0].Device == y[0].Device {
		t.Fatalf("not spread: %+v %+v", x, y)
	}
	return releaseOne, releaseOther
}

func restarts(t *testing.T, job string) string {
	t.Helper()
	for field := range strings.FieldsSeq(run(t, root, "scontrol -o show job "+job).Stdout) {
		if n, found := strings.CutPrefix(field, "Restarts="); found {
			return n
		}
	}
	return ""
}

// TestARequeuedJobNeverRunsUnlimited: Slurm 22.05 now and then starts a requeued job's batch step
// without having run the prolog for it.
func TestARequeuedJobNeverRunsUnlimited(t *testing.T) {
	begin(t)
	full, release := holding(t, one, "--gres=vgpu:2 --vgpu-mem=1000 --vgpu-cores=100")
	slicesOf(t, full)
	var jobs []string
	for range 4 {
		jobs = append(jobs, submit(t, two, "--gres=gpumem:10", "echo it runs; env | grep -c ^LD_PRELOAD=; "+seen))
	}
	for again := 1; again <= 3; again++ {
		for _, job := range jobs {
			until(t, "job "+job+" to come back", 60*time.Second, func() error {
				if n, now := restarts(t, job), state(t, job); n != fmt.Sprint(again) || now != "PENDING" {
					return fmt.Errorf("it is %s, restarts %s", now, n)
				}
				return nil
			})
			if again < 3 { // it comes without having been told of room
				ok(t, root, "scontrol update JobId="+job+" StartTime=now+2")
			}
		}
	}
	for _, job := range jobs {
		if out := output(t, two, job); strings.Contains(out, "it runs") {
			t.Errorf("job %s ran although it holds nothing: %s", job, out)
		}
	}
	release()
	for _, job := range jobs {
		if out := finish(t, two, job); !strings.HasSuffix(out, "it runs\n0\n10\n") && !strings.HasSuffix(out, "it runs\n1\n10\n") {
			t.Errorf("when there was room job %s saw: %s", job, out)
		}
	}
	finish(t, one, full)
}

func TestFragmentationFails(t *testing.T) {
	begin(t)
	c.OnNoFit = "fail"
	defer func() {
		c.OnNoFit = "requeue"
		if err := c.WriteConfig(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.WriteConfig(); err != nil {
		t.Fatal(err)
	}
	releaseOne, releaseOther := fragment(t)
	job := submit(t, two, "--gres=vgpu:1 --vgpu-mem=60000", "echo it runs")
	awaitState(t, job, "FAILED")
	out := output(t, two, job)
	if strings.Contains(out, "it runs") || !strings.Contains(out, "vgpu: ") || !strings.Contains(out, "43771") {
		t.Errorf("a job without room wrote: %s", out)
	}
	result := run(t, two, "srun --gres=vgpu:1 --vgpu-mem=60000 echo it runs")
	if result.Code == 0 || strings.Contains(result.Stdout, "it runs") || !strings.Contains(result.Stderr, "vgpu: ") {
		t.Errorf("srun without room: %s", result)
	}
	nodeIsUp(t)
	until(t, "an explanation", 60*time.Second, func() error {
		if result := run(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 explain "+job); !strings.Contains(result.Stdout, "43771") {
			return fmt.Errorf("%s", result)
		}
		return nil
	})
	until(t, "the refusal in AdminComment", 60*time.Second, func() error {
		if comment := account(t, job, "AdminComment"); !strings.Contains(comment, "refusals") {
			return fmt.Errorf("%s", comment)
		}
		return nil
	})
	releaseOne()
	releaseOther()
}

func TestAWholeGPUIsAlone(t *testing.T) {
	begin(t)
	job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=100")
	alone := slicesOf(t, job)[0].Device
	other, releaseOther := holding(t, two, "--gres=vgpu:1 --vgpu-mem=3000")
	if slicesOf(t, other)[0].Device == alone {
		t.Error("a slice stands beside one that has the GPU to itself")
	}
	release()
	releaseOther()
	finish(t, one, job)
	finish(t, two, other)
}

// TestDamagedState damages the state file under a running job; the next prolog has to cope.
func TestDamagedState(t *testing.T) {
	path := runDir("state.json")
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, text []byte) error
	}{
		{"truncated", func(_ *testing.T, text []byte) error { return os.WriteFile(path, text[:len(text)/2], 0o600) }},
		{"empty", func(*testing.T, []byte) error { return os.WriteFile(path, nil, 0o600) }},
		{"wrong checksum", func(_ *testing.T, text []byte) error {
			return os.WriteFile(path, []byte(strings.Replace(string(text), ",3000,", ",1,", 1)), 0o600)
		}},
		{"foreign", func(*testing.T, []byte) error { return os.WriteFile(path, []byte("hello\n"), 0o600) }},
		{"missing", func(*testing.T, []byte) error { return os.Remove(path) }},
		{"symlink", func(_ *testing.T, text []byte) error {
			if err := os.WriteFile(path+".elsewhere", text, 0o600); err != nil {
				return err
			}
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(path+".elsewhere", path)
		}},
		{"group-writable", func(*testing.T, []byte) error { return os.Chmod(path, 0o664) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin(t)
			job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
			before := slicesOf(t, job)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.damage(t, text); err != nil {
				t.Fatal(err)
			}
			if out := strings.TrimSpace(ok(t, two, "srun --gres=vgpu:1 --vgpu-mem=2000 "+seen).Stdout); out != "2000" {
				t.Errorf("the next job sees %s", out)
			}
			if after := slicesOf(t, job); len(after) != 1 || after[0] != before[0] {
				t.Errorf("slices of the running job: before %+v, after %+v", before, after)
			}
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 {
				t.Errorf("state.json is %v, %v", info, err)
			}
			release()
			finish(t, one, job)
		})
	}
}

// TestStateOfANewerRelease is left alone: the node says that it is broken, rather than lose slices.
func TestStateOfANewerRelease(t *testing.T) {
	begin(t)
	job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	slicesOf(t, job)
	path := runDir("state.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(text), `"version":2`, `"version":99`, 1)
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := submit(t, two, "--gres=vgpu:1 --vgpu-mem=2000", "echo it runs")
	until(t, "the node to be drained", 60*time.Second, func() error {
		if state := run(t, root, "sinfo -h -N -o '%T %E'").Stdout; !strings.Contains(state, "drain") {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	if now, _ := os.ReadFile(path); string(now) != newer {
		t.Errorf("state.json was changed to %s", now)
	}
	if out := output(t, two, refused); strings.Contains(out, "it runs") {
		t.Errorf("a job ran: %s", out)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, root, "scancel "+refused)
	ok(t, root, "scontrol update nodename=n1 state=resume")
	if held := slicesOf(t, job); len(held) != 1 {
		t.Errorf("slices of the running job: %+v", held)
	}
	release()
	finish(t, one, job)
}
