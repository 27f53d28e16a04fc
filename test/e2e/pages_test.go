// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a job's user owns on a node: its size, and who sees it.

// onlyItsOwnPages has a step look for pages of its user's other jobs: of one that was there before it, and of one that came later.
func onlyItsOwnPages(t *testing.T) {
	t.Helper()
	signs := openDir(t)
	earlier, releaseEarlier := holding(t, one, "--gres=vgpu:1 --vgpu-mem=1000")
	slicesOf(t, earlier)
	awaitState(t, earlier, "RUNNING")
	look := func(job string) string {
		return "echo $(find /run/slurm-vgpu/self/ /dev/slurm-vgpu/ " + runDir("pages") + " 2>/dev/null | grep -c /ledger$) $(ls " + runDir("pages") + "/" + job + " 2>/dev/null)\n"
	}
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", look("$SLURM_JOB_ID")+look(earlier)+"until [ -e "+signs+"/later ]; do sleep 0.05; done\n"+look("$(cat "+signs+"/later)"))
	slicesOf(t, job)
	awaitState(t, job, "RUNNING")
	later, releaseLater := holding(t, one, "--gres=vgpu:1 --vgpu-mem=1000")
	slicesOf(t, later)
	awaitState(t, later, "RUNNING")
	if err := errors.Join(os.WriteFile(filepath.Join(signs, "later.new"), []byte(later), 0o644), os.Rename(filepath.Join(signs, "later.new"), filepath.Join(signs, "later"))); err != nil {
		t.Fatal(err)
	}
	if out := strings.Split(finish(t, one, job), "\n"); len(out) != 4 || !strings.Contains(out[0], "groups") || strings.Contains(out[1], "groups") || strings.Contains(out[2], "groups") {
		t.Errorf("of its own pages, of an earlier job's and a later one's a step sees: %q", out)
	}
	releaseEarlier()
	releaseLater()
	finish(t, one, earlier)
	finish(t, one, later)
}

// A task reaches its own job's pages and no other's: it writes its ledger and its groups, and changes nothing else there.
func TestATaskReachesItsOwnPagesAlone(t *testing.T) {
	needStrict(t)
	begin(t)
	out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", `exec 2>/dev/null
		cd /run/slurm-vgpu/self/pages || exit 1
		for f in ledger groups; do cat $f > /dev/null && (: >> $f) && echo own $f; done
		cat time > /dev/null && echo read; (: >> time) && echo WRITTEN
		(: > other) && echo MADE; mkdir folder && echo MADE
		ln ledger more && echo LINKED; rm -f ledger && echo REMOVED; mv groups ledger && echo MOVED; true`)
	if want := "own ledger\nown groups\nread\n"; out != want {
		t.Errorf("a task at its pages: %q, want %q", out, want)
	}
	onlyItsOwnPages(t)
}

// smallRunDir puts the node's run directory on a file system of a few MiB until the test ends.
func smallRunDir(t *testing.T, options string) {
	t.Helper()
	endVgpud(t) // it keeps the other one
	aside := t.TempDir()
	ok(t, root, "cp -a "+runDir("inventory.json")+" "+aside)
	if err := unix.Mount("tmpfs", runDir(), "tmpfs", 0, options+",mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		settle(t)
		endVgpud(t)
		if err := unix.Unmount(runDir(), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ok(t, root, "cp -a "+aside+"/inventory.json "+runDir())
}

func pagesMounted(t *testing.T) int {
	t.Helper()
	return strings.Count(ok(t, root, "cat /proc/self/mountinfo").Stdout, runDir("pages")+"/")
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
		cd `+runDir("pages")+`/$SLURM_JOB_ID || exit 1
		for f in ledger groups; do
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
	if err := unix.Statfs(runDir("pages", job), &st); err != nil || st.Bfree != 0 {
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
