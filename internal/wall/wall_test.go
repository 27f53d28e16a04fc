// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package wall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

const (
	mib          = 1 << 20
	mine, others = device.UUID("GPU-a"), device.UUID("GPU-b")
	slurms       = device.UUID("GPU-c")
)

// book is a driver that keeps what it is told.
type book struct {
	limits map[string]uint64 // by GPU and folder
	used   uint64
	fails  map[device.UUID]error
	takes  uint64 // set: whatever it is told
}

func (b *book) SetLimit(gpu device.UUID, folder string, hardBytes uint64) error {
	if err := b.fails[gpu]; err != nil {
		return err
	}
	if b.takes != 0 {
		hardBytes = b.takes
	}
	if b.limits[string(gpu)+" "+folder] = hardBytes; hardBytes == discover.Unlimited {
		delete(b.limits, string(gpu)+" "+folder)
	}
	return nil
}

func (b *book) Limit(gpu device.UUID, folder string) (discover.Limit, error) {
	hard, has := b.limits[string(gpu)+" "+folder]
	if !has {
		hard = discover.Unlimited
	}
	return discover.Limit{HardBytes: hard, UsedBytes: b.used}, b.fails[gpu]
}

// scene is a node with one job, in a real cgroup.
type scene struct {
	Keeper
	t      *testing.T
	driver *book
	folder string // job_7's
}

func newScene(t *testing.T) *scene {
	t.Helper()
	mount, err := Mount()
	if err != nil {
		t.Skip(err)
	}
	top, err := os.MkdirTemp(mount, "vgpu-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.Remove(top) })
	s := &scene{t: t, driver: &book{limits: map[string]uint64{}, fails: map[device.UUID]error{}}, folder: filepath.Join(top, "job_7")}
	s.mkdir()
	t.Cleanup(func() { os.Remove(s.folder) })
	s.Keeper = Keeper{Run: rundir.Dir(t.TempDir()), Driver: s.driver,
		GPUs: []device.GPU{{UUID: mine}, {UUID: others}, {UUID: slurms, Lost: "Slurm's"}}}
	s.grant(0, 1000)
	return s
}

func (s *scene) mkdir() {
	s.t.Helper()
	if err := os.Mkdir(s.folder, 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) grant(restart int, memMiB int64) {
	s.t.Helper()
	err := errors.Join(os.MkdirAll(s.Run.Job(7), 0o755), grant.Write(s.Run.Grant(7), grant.Grant{Job: 7, Restart: restart, BootID: "b", Since: time.Now(),
		Slices: []device.Slice{{Device: mine, MemMiB: memMiB}}}))
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) raise() {
	s.t.Helper()
	if warnings, err := s.Raise(context.Background(), 7, s.folder); err != nil || len(warnings) > 0 {
		s.t.Fatal(warnings, err)
	}
}

func (s *scene) want(limits map[device.UUID]uint64) {
	s.t.Helper()
	want := map[string]uint64{}
	for gpu, bytes := range limits {
		want[string(gpu)+" "+s.folder] = bytes
	}
	if diff := cmp.Diff(want, s.driver.limits); diff != "" {
		s.t.Error(diff)
	}
}

func (s *scene) lower(want int) {
	s.t.Helper()
	if n, err := s.Lower(context.Background()); n != want || err != nil {
		s.t.Errorf("%d walls were lowered, want %d: %v", n, want, err)
	}
}

func (s *scene) stands() grant.Wall {
	s.t.Helper()
	w, err := grant.ReadWall(s.Run.Wall(7))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return w
}

// A job has its slices, nothing of other GPUs, and no limit where Slurm hands a GPU out by itself.
func TestAWallIsWhatTheJobWasGranted(t *testing.T) {
	s := newScene(t)
	s.raise()
	s.want(map[device.UUID]uint64{mine: 1000 * mib, others: 0})
	if w := s.stands(); !w.Raised || !w.Stands() || w.Cgroup != s.folder {
		t.Errorf("%+v", w)
	}
	s.grant(0, 2000)
	s.raise()
	s.want(map[device.UUID]uint64{mine: 2000 * mib, others: 0})
}

func TestAWallIsLoweredWhenItsJobIsOver(t *testing.T) {
	s := newScene(t)
	s.raise()
	s.lower(0)
	s.want(map[device.UUID]uint64{mine: 1000 * mib, others: 0})
	if err := os.RemoveAll(s.Run.Job(7)); err != nil {
		t.Fatal(err)
	}
	s.driver.fails[others] = errors.New("it hangs")
	if _, err := s.Lower(context.Background()); err == nil || s.stands().Job != 7 {
		t.Errorf("what could not be taken away is forgotten: %v", err)
	}
	delete(s.driver.fails, others)
	s.lower(1)
	s.want(nil)
	if s.stands().Job != 0 {
		t.Error("the file is there still")
	}
}

// What a job left running has no more than the job had: its memory may be another job's by now.
func TestWhoOutlivesItsJobHasNothingMore(t *testing.T) {
	s := newScene(t)
	s.raise()
	left := exec.Command("sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _, _ = left.Process.Kill(), left.Wait() }
	t.Cleanup(end)
	err := errors.Join(os.WriteFile(filepath.Join(s.folder, "cgroup.procs"), fmt.Append(nil, left.Process.Pid), 0), os.RemoveAll(s.Run.Job(7)))
	if err != nil {
		t.Fatal(err)
	}
	s.lower(1)
	s.want(map[device.UUID]uint64{mine: 0, others: 0})
	end()
}

// Whoever has the name of a folder by now is another cgroup: its limits are not touched.
func TestALaterCgroupOfTheSameNameKeepsItsLimits(t *testing.T) {
	s := newScene(t)
	s.raise()
	err := errors.Join(os.Remove(s.folder), os.RemoveAll(s.Run.Job(7)))
	if err != nil {
		t.Fatal(err)
	}
	s.mkdir()
	s.lower(1)
	s.want(map[device.UUID]uint64{mine: 1000 * mib, others: 0})
}

// Who dies between the first limit and the last leaves a file that says so.
func TestAWallThatIsNotWholeIsNotRaised(t *testing.T) {
	s := newScene(t)
	s.driver.fails[mine] = discover.ErrNoLimits
	if _, err := s.Raise(context.Background(), 7, s.folder); !errors.Is(err, discover.ErrNoLimits) {
		t.Error(err)
	}
	if w := s.stands(); w.Raised || w.Job != 7 {
		t.Errorf("%+v", w)
	}
	delete(s.driver.fails, mine)
	s.driver.fails[others] = errors.New("0 is not taken")
	if warnings, err := s.Raise(context.Background(), 7, s.folder); len(warnings) != 1 || err != nil {
		t.Error(warnings, err)
	}
	s.driver.takes = 5000 * mib
	if _, err := s.Raise(context.Background(), 7, s.folder); err == nil {
		t.Error("a driver that keeps another limit is believed")
	}
}

func TestNobodyElsesFolderGetsALimit(t *testing.T) {
	s := newScene(t)
	for folder, why := range map[string]string{filepath.Dir(s.folder): "not Slurm's", filepath.Join(s.folder, "job_8"): "another job's",
		filepath.Join(t.TempDir(), "job_7"): "no cgroup", "job_7": "relative"} {
		if _, err := s.Raise(context.Background(), 7, folder); err == nil {
			t.Errorf("%s is taken, which is %s", folder, why)
		}
	}
	if _, err := s.Raise(context.Background(), 8, s.folder); err == nil {
		t.Error("a job without a grant is walled")
	}
	s.want(nil)
}

// The most that the driver has said is kept, for the run that it was said of.
func TestThePeakIsTheDrivers(t *testing.T) {
	s := newScene(t)
	s.raise()
	for _, used := range []uint64{300, 700, 500} {
		s.driver.used = used * mib
		if err := s.Measure(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	s.raise() // a later step, in a folder that Slurm made anew
	if got := s.stands().PeakBytes[mine]; got != 700*mib {
		t.Errorf("the peak is %d", got)
	}
	s.grant(1, 1000)
	s.driver.used = 900 * mib
	if err := s.Measure(context.Background()); err != nil || s.stands().PeakBytes[mine] != 700*mib {
		t.Errorf("the next run's use is the last one's: %v", err)
	}
	s.raise()
	if got := s.stands(); got.Restart != 1 || len(got.PeakBytes) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestProbe(t *testing.T) {
	s := newScene(t)
	if backend, err := Probe(s.driver, s.GPUs); backend == "" || err != nil || len(s.driver.limits) != 0 {
		t.Errorf("%q, %v, %v", backend, err, s.driver.limits)
	}
	s.driver.fails[others] = fmt.Errorf("limit: %w", discover.ErrNoLimits)
	if _, err := Probe(s.driver, s.GPUs); !errors.Is(err, discover.ErrNoLimits) {
		t.Error(err)
	}
	delete(s.driver.fails, others)
	s.driver.takes = 1
	if _, err := Probe(s.driver, s.GPUs); err == nil {
		t.Error("a driver that keeps another limit is believed")
	}
	mount, _ := Mount()
	if left, _ := filepath.Glob(filepath.Join(mount, "slurm-vgpu-probe-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
