// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// jobFolder is what vgpu-prolog leaves for a job.
func jobFolder(t *testing.T, g Grant) rundir.Dir {
	t.Helper()
	dir := rundir.Dir(filepath.Join(t.TempDir(), "run"))
	if err := os.MkdirAll(dir.Job(g.Job), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir.Pages(g.Job), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Create(dir.Ledger(g.Job), g.Job, len(g.Slices), g.UID, g.GID); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir.Grant(g.Job), g); err != nil {
		t.Fatal(err)
	}
	return dir
}

// systemPreloads replaces /etc/ld.so.preload for one test.
func systemPreloads(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ld.so.preload")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	before := systemPreload
	systemPreload = path
	t.Cleanup(func() { systemPreload = before })
}

// checkLedger follows a step's link as it is followed in the step, where the job's pages are in its folder.
func checkLedger(t *testing.T, dir rundir.Dir, step string) {
	t.Helper()
	link, err := os.Readlink(filepath.Join(dir.Step(12, step), ledger.LedgerFile))
	if err != nil || filepath.IsAbs(link) {
		t.Fatalf("the link to the ledger: %s, %v", link, err)
	}
	of, _ := os.Stat(dir.Ledger(12))
	inPages, err := filepath.Rel(rundir.PagesFolder, link)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(filepath.Join(dir.Pages(12), inPages)); err != nil || !os.SameFile(of, is) {
		t.Errorf("the step's ledger is not the job's: %v", err)
	}
	if st, err := os.Stat(filepath.Join(dir.Step(12, step), rundir.PagesFolder)); err != nil || st.Mode() != fs.ModeDir|0o755 {
		t.Errorf("what the pages are mounted on: %v, %v", st, err)
	}
}

// Where nothing is mounted for the step it has the ledger by the path that it has on the node.
func TestWithoutIsolationALedgerIsWhereItIsOnTheNode(t *testing.T) {
	g := twoSlices()
	g.Isolation = IsolationPreload
	dir := jobFolder(t, g)
	if _, err := Prepare(dir, g, 0, "0", request.Request{}, nil); err != nil {
		t.Fatal(err)
	}
	if link, err := os.Readlink(filepath.Join(dir.Step(12, "0"), ledger.LedgerFile)); link != dir.Ledger(12) {
		t.Errorf("the link to the ledger: %s, %v", link, err)
	}
}

func TestPrepare(t *testing.T) {
	systemPreloads(t, "/lib/site.so\n")
	g := twoSlices()
	g.FailOpen = true
	dir := jobFolder(t, g)
	for range 2 { // a second call changes nothing
		got, err := Prepare(dir, g, 3, "3", ask(t, "mem=1000;cores=20;uuid=GPU-bbbbbbbb"), nil)
		if err != nil {
			t.Fatal(err)
		}
		folder := dir.Step(12, "3")
		if diff := cmp.Diff([]EnvVar{{"CUDA_VISIBLE_DEVICES", "0"}, {"VGPU_STEP_DIR", folder}}, got.Env); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]device.Minor{5, 4}, got.MaskMinors); diff != "" {
			t.Error(diff)
		}
		limits, err := ledger.ReadLimits(filepath.Join(folder, ledger.LimitsFile))
		if err != nil {
			t.Fatal(err)
		}
		want := ledger.Limits{Job: 12, Step: 3, UID: g.UID, Flags: ledger.FailOpen, Generation: 1, JobStep: "12.3", PagesDir: dir.Pages(12), Ledger: limits.Ledger, Devices: []ledger.LimitsDevice{
			{UUID: "GPU-aaaaaaaa-1", JobMemBytes: 3000 << 20, DeviceMemBytes: 10000 << 20, SMPercent: 30, JobSMPercent: 30, Index: 0, Minor: 4},
			{UUID: "GPU-bbbbbbbb-2", StepMemBytes: 1000 << 20, JobMemBytes: 3000 << 20, DeviceMemBytes: 20000 << 20, SMPercent: 20, JobSMPercent: 30, Index: 2, Minor: 6, Gated: true},
		}}
		if diff := cmp.Diff(want, limits); diff != "" {
			t.Error(diff)
		}
		if file, err := os.Stat(dir.Ledger(12)); err != nil || limits.Ledger.Inode != file.Sys().(*syscall.Stat_t).Ino {
			t.Errorf("the page names ledger %+v, %v", limits.Ledger, err)
		}
		if text, _ := os.ReadFile(got.PreloadFile); string(text) != "/run/slurm-vgpu/self/libslurm-vgpu.so\n/lib/site.so\n" {
			t.Errorf("ld.so.preload is %q", text)
		}
		checkLedger(t, dir, "3")
	}
	for path, mode := range map[string]os.FileMode{dir.Step(12, "3"): 0o755, filepath.Dir(dir.Step(12, "3")): 0o755,
		filepath.Join(dir.Step(12, "3"), "limits"): 0o644, filepath.Join(dir.Step(12, "3"), PreloadFile): 0o644} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

// The interposer takes a folder with limits for a complete one, so they come last.
func TestAStepWithoutALedgerHasNoLimits(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	if err := os.Remove(dir.Ledger(12)); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(dir, g, 0, "0", request.Request{}, nil); err == nil {
		t.Error("prepared without the job's ledger")
	}
	if _, err := os.Lstat(filepath.Join(dir.Step(12, "0"), ledger.LimitsFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its limits: %v", err)
	}
}

// A job that was requeued has a new ledger; a step of the same name counts in that.
func TestAStepHasTheLedgerThatItsJobHasNow(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	if _, err := Prepare(dir, g, 0, "0", request.Request{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir.Ledger(12), dir.Ledger(12)+".before"); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Create(dir.Ledger(12), 12, 2, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir.Step(12, "0"), ledger.LedgerFile)
	if err := errors.Join(os.Remove(link), os.Symlink("pages/ledger.before", link)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time there is nothing to do
		if _, err := Prepare(dir, g, 0, "0", request.Request{}, nil); err != nil {
			t.Fatal(err)
		}
		checkLedger(t, dir, "0")
	}
}

func TestPrepareWithoutAJobFolderOrAStepNameIsAnError(t *testing.T) {
	g := twoSlices()
	dir := rundir.Dir(t.TempDir())
	if _, err := Prepare(dir, g, 0, "0", request.Request{}, nil); err == nil {
		t.Error("prepared without the job's folder")
	}
	dir = jobFolder(t, g)
	for _, name := range []string{"", "..", "a/b", "0\n"} {
		if _, err := Prepare(dir, g, 0, name, request.Request{}, nil); err == nil {
			t.Errorf("prepared step %q", name)
		}
	}
}
