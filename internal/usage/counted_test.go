// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

func TestGPUTimeIsVgpudsCount(t *testing.T) {
	counted := ledger.TimeDevice{BusyNs: 2500e6, UnknownNs: 400e6, LookedNs: 1}
	split := counted
	split.Flags = ledger.TimeInexact | ledger.TimeUnnamed
	for name, c := range map[string]struct {
		counted ledger.TimeDevice
		want    Time
	}{
		"counted":               {counted, Time{GPUSeconds: new(2.5), UnknownSeconds: 0.4}},
		"split":                 {split, Time{GPUSeconds: new(2.5), UnknownSeconds: 0.4, Inexact: true}},
		"counted, and none":     {ledger.TimeDevice{LookedNs: 1}, Time{GPUSeconds: new(0.0)}},
		"vgpud has not looked":  {ledger.TimeDevice{}, Time{}},
		"vgpud was never there": {ledger.TimeDevice{UnknownNs: 5e9}, Time{UnknownSeconds: 5}},
	} {
		got := TimeOf(c.counted)
		if !cmp.Equal(got, c.want) || got.Used() != (c.counted.BusyNs > 0) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		sample := Sample(c.counted)
		if (sample.BusyMs == nil) != (c.want.GPUSeconds == nil) || sample.BusyMs != nil && float64(*sample.BusyMs) != 1000**c.want.GPUSeconds || float64(sample.UnknownMs) != 1000*c.want.UnknownSeconds {
			t.Errorf("%s: a sample says %+v", name, sample)
		}
	}
}

// count makes a job's time page and lets vgpud have counted.
func count(t *testing.T, dir rundir.Dir, g grant.Grant, devices ...ledger.TimeDevice) {
	t.Helper()
	if err := ledger.CreateTime(dir.Time(g.Job), g.Job, len(g.Slices)); err != nil {
		t.Fatal(err)
	}
	page, err := ledger.OpenTime(dir.Time(g.Job), g.Job)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	if err := page.Put(devices); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyRootsTimePageIsBelieved(t *testing.T) {
	g := twoSlices()
	some := ledger.TimeDevice{BusyNs: 5e9, UnknownNs: 1e9, LookedNs: 7}
	for name, c := range map[string]struct {
		spoil func(path string) error
		wrong error
		want  uint64
	}{
		"as vgpud left it":     {func(string) error { return nil }, nil, 5e9},
		"there is none":        {os.Remove, nil, 0},
		"of another layout":    {func(path string) error { return os.WriteFile(path, make([]byte, ledger.TimeBytes()), 0o644) }, nil, 0},
		"cut":                  {func(path string) error { return os.Truncate(path, 100) }, nil, 0},
		"as long as a disk":    {func(path string) error { return os.Truncate(path, 1<<40) }, errors.ErrUnsupported, 0},
		"writable by a user":   {func(path string) error { return os.Chmod(path, 0o666) }, trusted.ErrUntrusted, 0},
		"a link":               {func(path string) error { return errors.Join(os.Rename(path, path+".it"), os.Symlink(path+".it", path)) }, errors.ErrUnsupported, 0},
		"another job's":        {func(path string) error { return errors.Join(os.Remove(path), ledger.CreateTime(path, 13, 2)) }, nil, 0},
		"of a job with fewer":  {func(path string) error { return errors.Join(os.Remove(path), ledger.CreateTime(path, 12, 1)) }, nil, 0},
		"of a job with plenty": {func(path string) error { return errors.Join(os.Remove(path), ledger.CreateTime(path, 12, 16)) }, nil, 0},
	} {
		dir := jobFolder(t, g)
		count(t, dir, g, some, ledger.TimeDevice{})
		if err := c.spoil(dir.Time(g.Job)); err != nil {
			t.Fatal(err)
		}
		got, err := Collect(dir, g)
		if (err != nil) != (c.wrong != nil) || (c.wrong == trusted.ErrUntrusted && !errors.Is(err, c.wrong)) {
			t.Errorf("%s: %v", name, err)
		}
		if len(got.Counted) != 2 || got.Counted[0].BusyNs != c.want || got.Counted[1].LookedNs != 0 {
			t.Errorf("%s: %+v", name, got.Counted)
		}
	}
	dir := jobFolder(t, g)
	count(t, dir, g, ledger.TimeDevice{BusyNs: 1 << 63, UnknownNs: 1 << 63, LookedNs: 7}, some)
	got, err := Collect(dir, g)
	if most := uint64(4 * time.Hour); err != nil || got.Counted[0].BusyNs > most || got.Counted[0].UnknownNs > most || got.Counted[1].BusyNs != 5e9 {
		t.Errorf("a page that says more than there was: %+v, %v", got.Counted, err)
	}
}

// What a job's processes write has no part in its GPU time.
func TestARecordHasVgpudsCountAlone(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	of := func() Record {
		used, err := Collect(dir, g)
		if err != nil {
			t.Fatal(err)
		}
		rec := Record{End: time.Now(), Devices: []Device{{SMPercent: 30}, {SMPercent: 30}}}
		rec.Complete(timeline.History{}, used, 0)
		return rec
	}
	ledgerOf, err := os.OpenFile(dir.Ledger(g.Job), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ledgerOf.Close()
	if _, err := ledgerOf.WriteAt(bytes.Repeat([]byte{1}, 4096), 64); err != nil {
		t.Fatal(err)
	}
	running(t, dir)
	text, err := json.Marshal(of())
	if err != nil || !strings.Contains(string(text), `"gpu_seconds":null`) || strings.Contains(string(text), "inexact") {
		t.Errorf("where vgpud has not looked: %s, %v", text, err)
	}
	count(t, dir, g, ledger.TimeDevice{BusyNs: 7e9, LookedNs: uint64(ledger.TimeNow()), UnknownNs: 2e8, Flags: ledger.TimeInexact})
	rec := of()
	if want := (Time{GPUSeconds: new(7.0), UnknownSeconds: 0.2, Inexact: true}); !cmp.Equal(rec.Devices[0].Time, want) {
		t.Errorf("%+v", rec.Devices[0].Time)
	}
	if rec.Devices[1].GPUSeconds != nil {
		t.Errorf("of a slice at which vgpud has not looked: %g s", *rec.Devices[1].GPUSeconds)
	}
}

// running is the lock of a vgpud that runs.
func running(t *testing.T, dir rundir.Dir) {
	t.Helper()
	held, err := os.Create(dir.VgpudLock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// While vgpud is away, the time since its last look is what nobody counted.
func TestWhileVgpudIsAwayUnknownGrows(t *testing.T) {
	looked := func(ago time.Duration, flags uint32) ledger.TimeDevice {
		return ledger.TimeDevice{BusyNs: 5e9, UnknownNs: 1e9, LookedNs: uint64(ledger.TimeNow() - ago), Flags: flags}
	}
	free := twoSlices()
	free.Slices[0].SMPercent = 0
	for name, c := range map[string]struct {
		page    ledger.TimeDevice
		runs    bool
		program time.Duration // for how long one has been there; 0: none is
		grant   grant.Grant
		want    time.Duration
	}{
		"it is away":                              {looked(time.Minute, 0), false, 0, twoSlices(), 61 * time.Second},
		"it is there":                             {looked(5*time.Second, 0), true, 0, twoSlices(), time.Second},
		"it is there, and does not look":          {looked(time.Minute, 0), true, 0, twoSlices(), 61 * time.Second},
		"it had no work":                          {looked(time.Minute, ledger.TimeIdle), false, 0, twoSlices(), time.Second},
		"it had no work, and vgpud is there":      {looked(time.Minute, ledger.TimeIdle), true, 0, twoSlices(), time.Second},
		"it had no work, and has some since":      {looked(time.Minute, ledger.TimeIdle), false, 20 * time.Second, twoSlices(), 21 * time.Second},
		"it had no work, and a program has begun": {looked(time.Minute, ledger.TimeIdle), true, 20 * time.Second, twoSlices(), time.Second},
		"it never was there":                      {ledger.TimeDevice{}, false, 0, twoSlices(), 3 * time.Hour},
		"it never was there, without a share":     {ledger.TimeDevice{}, false, 0, free, 3 * time.Hour},
	} {
		dir := jobFolder(t, c.grant)
		count(t, dir, c.grant, c.page)
		if c.program > 0 {
			runProgram(t, dir, c.grant, c.program)
		}
		if c.runs {
			running(t, dir)
		}
		got, err := Collect(dir, c.grant)
		if off := time.Duration(got.Counted[0].UnknownNs) - c.want; err != nil || off < -time.Second/2 || off > 5*time.Second {
			t.Errorf("%s: %s, %v, want %s", name, time.Duration(got.Counted[0].UnknownNs), err, c.want)
		}
	}
}

// runProgram has a program with a context be there for some time.
func runProgram(t *testing.T, dir rundir.Dir, g grant.Grant, ago time.Duration) {
	t.Helper()
	if err := ledger.CreateGroups(dir.Groups(g.Job), g.Job, g.UID, g.GID); err != nil {
		t.Fatal(err)
	}
	page, err := os.OpenFile(dir.Groups(g.Job), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	// struct vgpu_groups_process behind the header: start_ticks, pidns; pid, count, more, sequence; of the group client, device, group, engine
	data := binary.LittleEndian.AppendUint64(nil, uint64((ledger.TimeNow()-ago)/(10*time.Millisecond)))
	data = binary.LittleEndian.AppendUint64(data, 42)
	for _, value := range []uint32{99, 1, 0, 2, 0xc1d0001e, 0x5c000001, 0x5c000010, 1} {
		data = binary.LittleEndian.AppendUint32(data, value)
	}
	if _, err := page.WriteAt(append(data, make([]byte, 80)...), 32); err != nil {
		t.Fatal(err)
	}
	memory, err := os.OpenFile(dir.Ledger(g.Job), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if _, err := memory.WriteAt(binary.LittleEndian.AppendUint64(nil, 1<<20), 64); err != nil { // ledger.used_bytes[0]
		t.Fatal(err)
	}
}
