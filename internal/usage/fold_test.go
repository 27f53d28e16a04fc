// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// twoSlices is a job that holds a slice of two GPUs.
func twoSlices() grant.Grant {
	return grant.Grant{Version: grant.Version, Job: 12, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Node: "n1", BootID: "b",
		Since: time.Now().UTC().Add(-3 * time.Hour).Truncate(time.Second), Request: "mem=3000;cores=30",
		Slices: []device.Slice{
			{Device: "GPU-aaaaaaaa-1", Index: 0, Minor: 4, MemMiB: 3000, SMPercent: 30},
			{Device: "GPU-bbbbbbbb-2", Index: 2, Minor: 6, MemMiB: 3000, SMPercent: 30},
		},
		NodeGPUsMiB: []int64{10000, 20000}, Policy: request.PolicyCap, Library: "/usr/lib/l.so"}
}

// jobFolder is what vgpu-prolog leaves for a job.
func jobFolder(t *testing.T, g grant.Grant) rundir.Dir {
	t.Helper()
	dir := rundir.Dir(filepath.Join(t.TempDir(), "run"))
	if err := errors.Join(os.MkdirAll(dir.Job(g.Job), 0o755), os.MkdirAll(dir.Pages(g.Job), 0o755),
		ledger.Create(dir.Ledger(g.Job), g.Job, len(g.Slices), g.UID, g.GID), grant.Write(dir.Grant(g.Job), g)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// spend writes what a step used into the ledger, as the interposer of a job's process does.
// Offsets are those of interposer/api/layout.h.
func spend(t *testing.T, path string, slot int, step uint32, peak, refusals uint64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	put := func(offset int64, value any) {
		data, err := binary.Append(nil, binary.LittleEndian, value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(data, offset); err != nil {
			t.Fatal(err)
		}
	}
	put(64+128, peak)       // ledger.peak_bytes[0]
	put(64+2*128, refusals) // ledger.refusals[0]
	at := int64(64 + 4*128 + slot*520)
	put(at, uint32(1))
	put(at+4, step)
	put(at+8+128, peak)
	put(at+8+2*128, refusals)
}

func TestFinishStepKeepsWhatTheStepUsed(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	for i, peak := range []uint64{900 << 20, 400 << 20} {
		step := uint32(i)
		name := rundir.StepName(step)
		if _, err := grant.Prepare(dir, g, step, name, request.Request{}, nil); err != nil {
			t.Fatal(err)
		}
		spend(t, dir.Ledger(12), i, step, peak, uint64(i))
		for range 2 {
			if err := FinishStep(dir, 12, step, name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(dir.Step(12, name)); err == nil {
			t.Errorf("the folder of step %s stays", name)
		}
	}
	// The job wipes its ledger: what was folded in stays known.
	if err := os.Truncate(dir.Ledger(12), 0); err != nil {
		t.Fatal(err)
	}
	got, err := Collect(dir, g)
	if err != nil || got.Spoiled == nil {
		t.Errorf("a wiped ledger: %v, %v", err, got.Spoiled)
	}
	got.Spoiled = nil
	first := ledger.DeviceUsage{PeakBytes: 900 << 20}
	second := ledger.DeviceUsage{PeakBytes: 400 << 20, Refusals: 1}
	total := first
	total.Refusals = 1
	want := Totals{Version: 1, Job: 12, Counted: make([]ledger.TimeDevice, 2), Devices: []ledger.DeviceUsage{total, {}},
		Steps: []StepTotals{{Step: "0", Devices: []ledger.DeviceUsage{first, {}}}, {Step: "1", Devices: []ledger.DeviceUsage{second, {}}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What is damaged counts as nothing, and is said: not as a job that has used nothing.
func TestUsageThatCannotBeBelievedIsAnError(t *testing.T) {
	g := twoSlices()
	for name, text := range map[string]string{"damaged": `{"version":1,"dev`, "of a later release": `{"version":2}`, "of none": `{}`} {
		dir := jobFolder(t, g)
		if got, err := Collect(dir, g); err != nil || len(got.Devices) != 2 {
			t.Fatalf("without a file: %v, %v", got, err)
		}
		if err := os.WriteFile(dir.Usage(12), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := Collect(dir, g); err == nil || len(got.Devices) != 2 || len(got.Steps) != 0 {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	dir := jobFolder(t, g)
	if err := os.WriteFile(dir.Usage(12), []byte(`{"version":1,"job":12,"devices":[{},{}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Collect(dir, g); err != nil {
		t.Errorf("as it should be: %v", err)
	}
	if err := os.Chmod(dir.Usage(12), 0o666); err != nil {
		t.Fatal(err)
	}
	if got, err := Collect(dir, g); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("writable by others: got %v, %v", got, err)
	}
}

func TestAStepWhoseUseCannotBeKeptIsNotFinished(t *testing.T) {
	for name, spoil := range map[string]func(dir rundir.Dir) error{
		"no lock":         func(dir rundir.Dir) error { return os.Mkdir(dir.Usage(12)+".lock", 0o755) },
		"another's lock":  func(dir rundir.Dir) error { return os.Symlink("/dev/null", dir.Usage(12)+".lock") },
		"damaged":         func(dir rundir.Dir) error { return os.WriteFile(dir.Usage(12), []byte("{"), 0o644) },
		"a damaged grant": func(dir rundir.Dir) error { return os.WriteFile(dir.Grant(12), []byte("{"), 0o644) },
	} {
		g := twoSlices()
		dir := jobFolder(t, g)
		if _, err := grant.Prepare(dir, g, 0, "0", request.Request{}, nil); err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if err := FinishStep(dir, 12, 0, "0"); err == nil {
			t.Errorf("%s: finished", name)
		}
		if _, err := os.Stat(dir.Step(12, "0")); err != nil {
			t.Errorf("%s: the step's folder: %v", name, err)
		}
	}
}

func TestAStepWithoutANameIsNotFinished(t *testing.T) {
	dir := jobFolder(t, twoSlices())
	for _, name := range []string{"", "..", "a/b", "0\n"} {
		if err := FinishStep(dir, 12, 0, name); err == nil {
			t.Errorf("finished step %q", name)
		}
	}
}

func TestFinishStepOfAJobThatIsNotThereIsNoError(t *testing.T) {
	if err := FinishStep(rundir.Dir(t.TempDir()), 99, 0, "0"); err != nil {
		t.Error(err)
	}
	g := twoSlices()
	g.Slices, g.Refusal = nil, "no room"
	dir := rundir.Dir(t.TempDir())
	if err := os.MkdirAll(dir.Job(12), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := grant.Write(dir.Grant(12), g); err != nil {
		t.Fatal(err)
	}
	if err := FinishStep(dir, 12, 0, "0"); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(dir.Job(12) + "/*"); len(left) != 1 || !strings.HasSuffix(left[0], "grant.json") {
		t.Errorf("a refused job has %v", left)
	}
}

func TestUsageOfAnEarlierRunIsNotThisOnes(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	if _, err := grant.Prepare(dir, g, 0, "0", request.Request{}, nil); err != nil {
		t.Fatal(err)
	}
	spend(t, dir.Ledger(12), 0, 0, 77, 0)
	if err := FinishStep(dir, 12, 0, "0"); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(dir.Ledger(12), 0); err != nil {
		t.Fatal(err)
	}
	g.Restart = 1
	if got, _ := Collect(dir, g); got.Devices[0].PeakBytes != 0 || len(got.Steps) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestStepsThatEndTogetherAreAllKept(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	const steps = 32
	var done sync.WaitGroup
	for step := range uint32(steps) {
		name := rundir.StepName(step)
		if _, err := grant.Prepare(dir, g, step, name, request.Request{}, nil); err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			if err := FinishStep(dir, 12, step, name); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if got, err := Collect(dir, g); err != nil || len(got.Steps) != steps {
		t.Errorf("%d steps, want %d: %v", len(got.Steps), steps, err)
	}
}

func TestAPeakFromBeforeAChangeStaysKnown(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	if _, err := grant.Prepare(dir, g, 0, "0", request.Request{}, nil); err != nil {
		t.Fatal(err)
	}
	spend(t, dir.Ledger(12), 0, 0, 2900<<20, 0)
	for i := range g.Slices { // as vgpuctl set does
		g.Slices[i].MostMiB, g.Slices[i].MemMiB = g.Slices[i].MemMiB, 1000
	}
	if err := grant.Write(dir.Grant(12), g); err != nil {
		t.Fatal(err)
	}
	if err := FinishStep(dir, 12, 0, "0"); err != nil {
		t.Fatal(err)
	}
	got, err := Collect(dir, g)
	if err != nil || got.Devices[0].PeakBytes != 2900<<20 || got.Steps[0].Devices[0].PeakBytes != 2900<<20 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Where the driver holds the job, its word counts as well: what the ledger hides is in the record, within the grant and of this run.
func TestTheDriversPeakCountsWhereItIsHigher(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	limit := uint64(g.Slices[0].MemMiB) << 20
	if err := os.MkdirAll(dir.Walls(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ ledger, driver, want uint64 }{{100 << 20, 300 << 20, 300 << 20}, {400 << 20, 300 << 20, 400 << 20}, {0, 2 * limit, limit}} {
		spend(t, dir.Ledger(12), 0, 0, tc.ledger, 0)
		w := grant.Wall{Job: 12, Restart: g.Restart, BootID: g.BootID, Cgroup: "/gone", PeakBytes: map[device.UUID]uint64{g.Slices[0].Device: tc.driver}}
		for restart, want := range map[int]uint64{g.Restart: tc.want, g.Restart + 1: tc.ledger} {
			w.Restart = restart
			if err := grant.WriteWall(dir.Wall(12), w); err != nil {
				t.Fatal(err)
			}
			if got, err := Collect(dir, g); err != nil || got.Devices[0].PeakBytes != want {
				t.Errorf("%+v, restart %d: %+v, %v", tc, restart, got.Devices[0], err)
			}
		}
	}
}
