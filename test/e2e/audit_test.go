// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// strays is what an audit of n1 finds, each as "KIND USER JOB", sorted.
func strays(t *testing.T) (short []string) {
	t.Helper()
	result := run(t, root, tool("n1", "audit --json --apart 200ms"))
	var report struct {
		Strays []struct {
			Kind, User string
			Job        int
		}
		Problems []string
	}
	if err := json.Unmarshal([]byte(result.Stdout), &report); err != nil || len(report.Problems) > 0 {
		t.Fatalf("%v: %s", err, result)
	}
	for _, s := range report.Strays {
		short = append(short, fmt.Sprintf("%s %s %d", s.Kind, s.User, s.Job))
	}
	if (result.Code == 3) != (len(short) > 0) || (result.Code != 0) != (len(short) > 0) {
		t.Errorf("the exit code does not say what was found: %s", result)
	}
	slices.Sort(short)
	return short
}

func wantStrays(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	until(t, "stray use", 30*time.Second, func() error {
		if got := strays(t); !slices.Equal(got, want) {
			return fmt.Errorf("found %q, want %q", got, want)
		}
		return nil
	})
}

// outside starts a program of a user's outside of Slurm, which has GPU memory until the test ends.
func outside(t *testing.T, u cluster.User, environment string) (pid int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := c.Command(ctx, u, "exec env "+environment+" vgpu-fill --quiet --upto 100 --hold-until never")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
	})
	return cmd.Process.Pid
}

// booked is the environment by which a user has a process of his counted for one of his jobs, where Slurm makes no
// cgroups.
func booked(job string) string { return "VGPU_STEP_DIR=" + runDir("jobs", job, "batch") }

// onGPU makes a GPU of the node the only one that CUDA sees.
func onGPU(uuid string) string { return " CUDA_VISIBLE_DEVICES=" + uuid }

// otherGPU is the one on which a job has no slice.
func otherGPU(t *testing.T, job string) string {
	t.Helper()
	for _, uuid := range strings.Fields(ok(t, root, "nvidia-smi --query-gpu=uuid --format=csv,noheader").Stdout) {
		if uuid != slicesOf(t, job)[0].Device {
			return uuid
		}
	}
	t.Fatal("there is no other GPU")
	return ""
}

func TestTheAuditFindsWhoIsInNoJob(t *testing.T) {
	for _, tc := range []struct {
		name  string
		start func(t *testing.T)
		want  string
	}{
		{"a login shell's", func(t *testing.T) { outside(t, one, "-i PATH=$PATH") }, "no-job " + one.Name + " 0"},
		{"a service's", func(t *testing.T) { outside(t, root, "") }, ""}, // audit_ignore
		{"in a user namespace", func(t *testing.T) { outside(t, two, "unshare --user --map-root-user") }, "no-job " + two.Name + " 0"},
		{"of a job without slices", func(t *testing.T) {
			submit(t, one, "", "vgpu-fill --upto 100 --hold-until never")
		}, "no-job " + one.Name + " 0"},
		{"says that it is of another user's job", func(t *testing.T) {
			job, _ := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
			slicesOf(t, job)
			outside(t, two, booked(job))
		}, "no-job " + two.Name + " 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin(t)
			tc.start(t)
			if tc.want != "" {
				wantStrays(t, tc.want)
				return
			}
			until(t, "its memory", 30*time.Second, func() error {
				if out := ok(t, root, "nvidia-smi --query-compute-apps=pid --format=csv,noheader").Stdout; out == "" {
					return fmt.Errorf("nobody has any")
				}
				return nil
			})
			wantStrays(t)
		})
	}
}

// What a job leaves behind is found by the audit that vgpud runs after it.
func TestWhatAJobLeftIsLookedFor(t *testing.T) {
	begin(t)
	gate := filepath.Join(openDir(t), "gate")
	t.Cleanup(func() { _ = os.WriteFile(gate, nil, 0o644) })
	log := c.Home.Path("log", "vgpu.log")
	var before int64
	if info, err := os.Stat(log); err == nil {
		before = info.Size()
	}
	batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", "setsid bash -c '(vgpu-fill --upto 100 --hold-until "+gate+
		" > left.out 2>&1 &)'; until grep -qs after left.out; do sleep 0.1; done; rm left.out")
	until(t, "a line of the log", 60*time.Second, func() error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text[before:])) {
			if strings.Contains(line, "stray use of a GPU") && strings.Contains(line, "no-job") && strings.Contains(line, one.Name) {
				return nil
			}
		}
		return fmt.Errorf("it says %s", text[before:])
	})
	wantStrays(t, "no-job "+one.Name+" 0")
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantStrays(t)
}

// Where struct vgpu_ledger has what a job could falsify.
const (
	headUsed   = 64
	firstSlot  = 64 + 4*128 + 256*520
	slotUsed   = firstSlot + 32
	slotsBytes = 4 * 320
)

// zeroed is a line of a job's script that overwrites some bytes of its ledger.
func zeroed(at, count int) string {
	return fmt.Sprintf("dd if=/dev/zero of=%s/$SLURM_JOB_ID/ledger bs=1 seek=%d count=%d conv=notrunc status=none\n", runDir("pages"), at, count)
}

func TestTheAuditFindsWhatAJobHides(t *testing.T) {
	fill := func(n string) string {
		return "vgpu-fill --upto 1200 --hold-until never > fill" + n + " &\nuntil grep -qs after fill" + n + "; do sleep 0.1; done; rm fill" + n + "\n"
	}
	for _, tc := range []struct {
		name, script string
		kinds        []string
	}{
		{"nothing", fill("1"), nil},
		{"a process without a slot", fill("1") + zeroed(firstSlot, slotsBytes), []string{"not-in-ledger"}},
		{"memory of a process", fill("1") + zeroed(slotUsed, 8), []string{"unaccounted"}},
		{"more than its slice", fill("1") + zeroed(headUsed, 8) + zeroed(slotUsed, 8) + fill("2"), []string{"over-limit", "unaccounted"}},
		{"the whole ledger", fill("1") + "truncate -s 0 " + runDir("pages") + "/$SLURM_JOB_ID/ledger", []string{"not-in-ledger"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin(t)
			job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=2500", tc.script+"\n: > done.out; wait")
			t.Cleanup(func() { _ = os.Remove(filepath.Join(one.Home, "done.out")) })
			until(t, "the job's programs", 60*time.Second, func() error {
				_, err := os.Stat(filepath.Join(one.Home, "done.out"))
				return err
			})
			var want []string
			for _, kind := range tc.kinds {
				want = append(want, kind+" "+one.Name+" "+job)
			}
			wantStrays(t, want...)
		})
	}
}

func TestTheAuditFindsWhoIsWithoutTheLibrary(t *testing.T) {
	begin(t)
	job, _ := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	here := slicesOf(t, job)[0].Device
	t.Run("on the job's GPU", func(t *testing.T) {
		outside(t, one, booked(job)+onGPU(here))
		wantStrays(t, "not-in-ledger "+one.Name+" "+job)
	})
	t.Run("on another", func(t *testing.T) {
		outside(t, one, booked(job)+onGPU(otherGPU(t, job)))
		wantStrays(t, "no-slice "+one.Name+" "+job)
	})
}
