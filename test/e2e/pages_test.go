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

	"golang.org/x/sys/unix"
)

// What a job's user owns on a node: its size, and who sees it.

// laterClaimsAreSeen has a step look for the claims of a job that began after it, and for those of
// one that has ended.
func laterClaimsAreSeen(t *testing.T) {
	t.Helper()
	found, ask := filepath.Join(one.Home, "seen.out"), filepath.Join(one.Home, "ask")
	for _, path := range []string{found, ask} {
		_ = os.Remove(path)
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	early := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", `
		echo began > seen.out
		until [ -e ask ]; do sleep 0.1; done; read later < ask
		cat `+runDir("turns")+`/$later/claims >/dev/null 2>&1 && echo seen >> seen.out || echo unseen >> seen.out
		while [ -e ask ]; do sleep 0.1; done
		cat `+runDir("turns")+`/$later/claims >/dev/null 2>&1 && echo seen >> seen.out || echo gone >> seen.out`)
	wantLine := func(n int, want string) {
		t.Helper()
		until(t, "what the step sees", 30*time.Second, func() error {
			data, err := os.ReadFile(found)
			if err == nil && strings.Count(string(data), "\n") < n {
				err = fmt.Errorf("it wrote %q", data)
			}
			return err
		})
		data, _ := os.ReadFile(found)
		if lines := strings.Fields(string(data)); lines[n-1] != want {
			t.Errorf("a step that ran before says that claims are %s, want %s", lines[n-1], want)
		}
	}
	wantLine(1, "began")
	later, release := holding(t, two, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30")
	slicesOf(t, later)
	awaitState(t, later, "RUNNING")
	// Whole at once: the job looks every 0.1 s whether it is there.
	if err := os.WriteFile(ask+".new", []byte(later+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ask+".new", ask); err != nil {
		t.Fatal(err)
	}
	wantLine(2, "seen")
	release()
	finish(t, two, later)
	until(t, "the end of the later job's slices", 30*time.Second, func() error {
		for _, s := range stateSlices(t) {
			if fmt.Sprint(s.Job) == later {
				return fmt.Errorf("it holds %+v", s)
			}
		}
		return nil
	})
	if err := os.Remove(ask); err != nil {
		t.Fatal(err)
	}
	wantLine(3, "gone")
	finish(t, one, early)
}

func TestClaimsOfLaterJobsAreSeen(t *testing.T) {
	begin(t)
	laterClaimsAreSeen(t)
}

// smallRunDir puts the node's run directory on a file system of a few MiB until the test ends.
func smallRunDir(t *testing.T, options string) {
	t.Helper()
	aside := t.TempDir()
	ok(t, root, "cp -a "+runDir("inventory.json")+" "+aside)
	if err := unix.Mount("tmpfs", runDir(), "tmpfs", 0, options+",mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		settle(t)
		if err := unix.Unmount(runDir(), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ok(t, root, "cp -a "+aside+"/inventory.json "+runDir())
}

func pagesMounted(t *testing.T) int {
	t.Helper()
	return strings.Count(ok(t, root, "cat /proc/self/mountinfo").Stdout, runDir("turns")+"/")
}

// A job fills all that it owns, and does what it can to keep it. Others start, run and end, and so
// does the job itself.
func TestAJobFillsOnlyWhatIsItsOwn(t *testing.T) {
	if c.Home.InPlace() {
		t.Skip("mounts are forbidden here, so that files of users stand in the run directory")
	}
	begin(t)
	smallRunDir(t, "size=4m")
	gate := filepath.Join(one.Home, "gate")
	t.Cleanup(func() { _ = os.Remove(gate) })
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", `exec 2>/dev/null
		cd `+runDir("turns")+`/$SLURM_JOB_ID || exit 1
		for f in ledger claims; do
			fallocate -l 1G $f; dd if=/dev/zero of=$f bs=4k oflag=append conv=notrunc; ln $f ../$f; ln $f more
			setsid bash -c 'exec 3<>$0; sleep 1000' $f &
		done
		touch $HOME/gate; until [ ! -e $HOME/gate ]; do sleep 0.1; done; true`)
	until(t, "a full job", 60*time.Second, func() error {
		_, err := os.Stat(gate)
		return err
	})
	var st unix.Statfs_t
	if err := unix.Statfs(runDir(), &st); err != nil {
		t.Fatal(err)
	}
	if st.Bfree < st.Blocks*9/10 {
		t.Errorf("of the run directory's %d blocks %d are free", st.Blocks, st.Bfree)
	}
	if err := unix.Statfs(runDir("turns", job), &st); err != nil || st.Bfree != 0 {
		t.Errorf("the job has not filled what it owns: %d blocks are free, %v", st.Bfree, err)
	}
	if out := strings.TrimSpace(ok(t, two, "srun --gres=vgpu:1 --vgpu-mem=2000 "+seen).Stdout); out != "2000" {
		t.Errorf("a job of another user sees %s", out)
	}
	if out := strings.TrimSpace(ok(t, two, "srun echo well").Stdout); out != "well" {
		t.Errorf("a job without slices says %s", out)
	}
	if out := strings.TrimSpace(ok(t, one, "srun --overlap --jobid="+job+" "+seen).Stdout); out != "3000" {
		t.Errorf("another step of the full job sees %s", out)
	}
	nodeIsUp(t)
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	finish(t, one, job)
	settle(t)
	if n := pagesMounted(t); n != 0 {
		t.Errorf("%d file systems of jobs stay mounted", n)
	}
}
