// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// needVgpud is for what vgpud keeps: it does on the simulated control device.
func needVgpud(t *testing.T) {
	t.Helper()
	if !c.HasControl() {
		t.Skip("the simulated GPUs have no control device here")
	}
}

// endVgpud ends that of n1, if there is one. The next job with a slice begins another.
func endVgpud(t *testing.T) {
	t.Helper()
	if supervisor, _ := vgpuds(t); supervisor != 0 {
		_ = unix.Kill(supervisor, unix.SIGTERM)
	}
	until(t, "end of vgpud", 20*time.Second, func() error {
		if is, err := trusted.IsLocked(runDir("vgpud.lock")); err != nil || is {
			return fmt.Errorf("its lock is held: %v, %v", is, err)
		}
		return nil
	})
}

// vgpuds are the two processes of n1's vgpud; 0: not there.
func vgpuds(t *testing.T) (supervisor, worker int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		program, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		words, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		environment, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		switch {
		case program != c.Home.Program("vgpud") || !strings.Contains("\x00"+string(environment), "\x00SLURMD_NODENAME=n1\x00"):
		case strings.HasSuffix(string(words), "\x00worker\x00"):
			worker = pid
		default:
			supervisor = pid
		}
	}
	return supervisor, worker
}

// vgpudsToEnd waits until both are there: after a worker's end there is none for a moment, and a signal to process 0 is one to the whole test run.
func vgpudsToEnd(t *testing.T) (supervisor, worker int) {
	t.Helper()
	until(t, "a supervisor and a worker of vgpud", 10*time.Second, func() error {
		if supervisor, worker = vgpuds(t); supervisor == 0 || worker == 0 {
			return fmt.Errorf("processes %d, %d", supervisor, worker)
		}
		return nil
	})
	return supervisor, worker
}

// counted is a job's page of GPU time.
func counted(t *testing.T, job string) ledger.TimeDevice {
	t.Helper()
	id, err := strconv.ParseUint(job, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	var devices []ledger.TimeDevice
	until(t, "a page of GPU time", 30*time.Second, func() (err error) {
		devices, err = ledger.ReadTime(runDir("pages", job, "time"), uint32(id))
		if err == nil && len(devices) != 1 {
			err = fmt.Errorf("%+v", devices)
		}
		return err
	})
	return devices[0]
}

// atWork is a job with an elastic slice of this share, in which a program is busy until the test ends.
func atWork(t *testing.T, cores int, how string) (job string) {
	t.Helper()
	return busyUnder(t, "elastic", cores, how)
}

// busyUnder has it under a policy.
func busyUnder(t *testing.T, policy string, cores int, how string) (job string) {
	t.Helper()
	job = submit(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=%d --vgpu-policy=%s", cores, policy), "vgpu-busy "+how+" --for 600000")
	t.Cleanup(func() { run(t, root, "scancel "+job) }) // it may have ended
	until(t, "GPU time of job "+job, 60*time.Second, func() error {
		if page := counted(t, job); page.BusyNs == 0 {
			return fmt.Errorf("%+v", page)
		}
		return nil
	})
	return job
}

func isOff() bool {
	_, err := os.Stat(runDir("vgpud.off"))
	return err == nil
}

// TestVgpudKeepsAndCountsShares: two jobs that are always at work have the time slices and the GPU time of their shares.
func TestVgpudKeepsAndCountsShares(t *testing.T) {
	needVgpud(t)
	begin(t)
	always := "--us 20000 --ahead 16" // a third of a second of work waits, however late its program gets to run
	less, more := atWork(t, 30, always), atWork(t, 70, always)
	until(t, "time slices of 30 to 70", 30*time.Second, func() error {
		a, b := counted(t, less).SliceUs, counted(t, more).SliceUs
		if a == 0 || a*70/30 < b-10 || a*70/30 > b+10 {
			return fmt.Errorf("%d and %d us", a, b)
		}
		return nil
	})
	was := []ledger.TimeDevice{counted(t, less), counted(t, more)}
	until(t, "three seconds of GPU time", 30*time.Second, func() error {
		had := counted(t, less).BusyNs + counted(t, more).BusyNs - was[0].BusyNs - was[1].BusyNs
		if time.Duration(had) < 3*time.Second {
			return fmt.Errorf("%s", time.Duration(had))
		}
		return nil
	})
	a, b := counted(t, less).BusyNs-was[0].BusyNs, counted(t, more).BusyNs-was[1].BusyNs
	if part := float64(a) / float64(a+b); part < 0.25 || part > 0.35 {
		t.Errorf("a slice of 30 had %.1f %% of the GPU time of both", 100*part)
	}
}

// awaitOff waits until somebody is.
func awaitOff(t *testing.T) {
	t.Helper()
	until(t, "somebody who is off", 60*time.Second, func() error {
		if !isOff() {
			return errors.New("nobody is")
		}
		return nil
	})
}

// goOn waits until each job has had GPU time since now; no counter goes back.
func goOn(t *testing.T, jobs []string, what string) {
	t.Helper()
	var was []uint64
	for _, job := range jobs {
		was = append(was, counted(t, job).BusyNs)
	}
	until(t, "GPU time of all, "+what, 30*time.Second, func() error {
		for i, job := range jobs {
			now := counted(t, job).BusyNs
			if now < was[i] {
				t.Fatalf("the counter of job %s went from %d to %d", job, was[i], now)
			}
			if now < was[i]+uint64(50*time.Millisecond) {
				return fmt.Errorf("job %s had %s", job, time.Duration(now-was[i]))
			}
		}
		return nil
	})
}

// TestVgpudMayDie: whoever dies while somebody is off, they are on again, and the counters go on.
func TestVgpudMayDie(t *testing.T) {
	needVgpud(t)
	begin(t)
	jobs := []string{atWork(t, 20, "--us 1000 --rest 1000"), atWork(t, 30, "--us 1000"), atWork(t, 50, "--us 1000")}
	awaitOff(t)
	supervisor, worker := vgpudsToEnd(t)
	if err := unix.Kill(worker, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	goOn(t, jobs, "with another worker")
	if same, another := vgpuds(t); same != supervisor || another == worker {
		t.Errorf("supervisor %d, worker %d; before: %d, %d", same, another, supervisor, worker)
	}
	awaitOff(t)
	if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "all on again by the worker", 10*time.Second, func() error {
		if s, w := vgpuds(t); s != 0 || w != 0 || isOff() {
			return fmt.Errorf("processes %d, %d; off: %v", s, w, isOff())
		}
		return nil
	})
	jobs = append(jobs, atWork(t, 0, "--us 1000 --rest 50000")) // its prolog begins a third one
	goOn(t, jobs, "with another vgpud")
	awaitOff(t)
	supervisor, worker = vgpudsToEnd(t)
	for _, pid := range []int{supervisor, worker} {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // so that neither does anything about the other's end
			t.Fatal(err)
		}
	}
	for _, pid := range []int{supervisor, worker} {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if !isOff() {
		t.Error("nobody was off")
	}
	ok(t, root, "SLURMD_NODENAME=n1 "+c.Home.Program("vgpud")+" --config "+c.ConfigOf("n1")+" release")
	if isOff() {
		t.Error("something is off")
	}
	was := time.Duration(counted(t, jobs[1]).UnknownNs).Seconds() // nobody writes there any more
	until(t, "time that nobody counts", 10*time.Second, func() error {
		var told struct {
			Slices []struct {
				Unknown float64 `json:"unknown_seconds"`
			} `json:"slices"`
		}
		out := ok(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 explain --json "+jobs[1]).Stdout
		if err := json.Unmarshal([]byte(out), &told); err != nil || len(told.Slices) != 1 || told.Slices[0].Unknown < was+1 {
			return fmt.Errorf("it was %.1f s; %v: %s", was, err, out)
		}
		return nil
	})
}

// TestVgpudFreezesWhoCheats: a step that sets its own time slice, and one that goes without the library, are frozen; their neighbour is not.
func TestVgpudFreezesWhoCheats(t *testing.T) {
	needVgpud(t)
	begin(t)
	honest := atWork(t, 40, "--us 2000")
	cheats := map[string]string{}
	for _, how := range []string{"slice --us 2000 --for 600000", "raw 2000"} {
		job := submit(t, two, "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=30 --vgpu-policy=elastic", "vgpu-cheat "+how)
		t.Cleanup(func() { run(t, root, "scancel --signal=KILL "+job) }) // a stopped process ends by no other; it may have been killed
		cheats[job] = how
	}
	for job, how := range cheats {
		until(t, "a frozen step of "+how, 30*time.Second, func() error {
			if page := counted(t, job); page.Frozen == 0 {
				return fmt.Errorf("%+v", page)
			}
			return nil
		})
	}
	if page := counted(t, honest); page.Frozen != 0 {
		t.Errorf("a step that does nothing of it was frozen: %+v", page)
	}
}

// TestWhoCheatsIsTold: the output of a job whose step was killed says so, its record does, and what its user asks.
func TestWhoCheatsIsTold(t *testing.T) {
	needVgpud(t)
	begin(t)
	configured(t, "cheaters: kill\n")
	const cheat, ask = "vgpu-cheat slice --us 2000 --for 600000", "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=30 --vgpu-policy=elastic"
	in := map[string]string{ // by job, the state in which it ends
		submit(t, one, ask, "srun "+cheat+"\nvgpuctl --config "+c.ConfigPath()+" --node n1 explain $SLURM_JOB_ID\nexit 0"): "COMPLETED",
		submit(t, two, ask, cheat): "FAILED",
	}
	for job, state := range in {
		u := one
		if state != "COMPLETED" {
			u = two
		}
		awaitState(t, job, state)
		const says = "a process of the job set for itself how long it stays on the GPU at a time, which gets around its share of the GPU's time: a step was killed once"
		until(t, "words in the output of job "+job, 10*time.Second, func() error {
			if out := output(t, u, job); !strings.Contains(out, "vgpu: "+says) || state == "COMPLETED" && !strings.Contains(out, "vgpud        "+says) {
				return errors.New(out)
			}
			return nil
		})
		until(t, "record of job "+job, 30*time.Second, func() error {
			if out := account(t, job, "AdminComment"); !strings.Contains(out, `"seen":"sets its own time slice","killed":1`) {
				return errors.New(out)
			}
			return nil
		})
		if out := ok(t, u, reportCommand("n1", job)).Stdout; !strings.Contains(out, says) {
			t.Errorf("the report says %s", out)
		}
	}
}
