// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
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

func TestWhatVgpudCountsAddsToWhatTheLibraryDid(t *testing.T) {
	ms := func(ms int64) *int64 { return &ms }
	counted := ledger.TimeDevice{BusyNs: 2500e6, UnknownNs: 400e6, LookedNs: 1}
	split := counted
	split.Flags = ledger.TimeInexact | ledger.TimeUnnamed
	for name, c := range map[string]struct {
		busyMs  uint64 // the ledger's
		counted ledger.TimeDevice
		looked  timeline.Sample
		want    Time
		source  Source
	}{
		"counted":                         {0, counted, timeline.Sample{}, Time{GPUSeconds: 2.5, UnknownSeconds: 0.4}, Counted},
		"the library kept it for a while": {3000, counted, timeline.Sample{}, Time{GPUSeconds: 5.5, UnknownSeconds: 0.4}, Metered},
		"split":                           {0, split, timeline.Sample{}, Time{GPUSeconds: 2.5, UnknownSeconds: 0.4, Inexact: true}, Counted},
		"split once":                      {0, counted, timeline.Sample{CountedMs: ms(1), Inexact: true}, Time{GPUSeconds: 2.5, UnknownSeconds: 0.4, Inexact: true}, Counted},
		"metered, and wiped since":        {0, counted, timeline.Sample{MeteredMs: 1000}, Time{GPUSeconds: 3.5, UnknownSeconds: 0.4}, Metered},
		"sampled before":                  {0, counted, timeline.Sample{SampledMs: ms(1000)}, Time{GPUSeconds: 3.5, UnknownSeconds: 0.4}, Sampled},
		"sampled before, and none":        {0, counted, timeline.Sample{SampledMs: ms(0)}, Time{GPUSeconds: 2.5, UnknownSeconds: 0.4}, Counted},
		"the page is gone":                {0, ledger.TimeDevice{}, timeline.Sample{CountedMs: ms(2000), UnknownMs: 100}, Time{GPUSeconds: 2, UnknownSeconds: 0.1}, Counted},
		"the page was made anew":          {0, ledger.TimeDevice{BusyNs: 1e6, LookedNs: 1}, timeline.Sample{CountedMs: ms(2000), UnknownMs: 100}, Time{GPUSeconds: 2, UnknownSeconds: 0.1}, Counted},
		"vgpud has not looked":            {0, ledger.TimeDevice{}, timeline.Sample{}, Time{}, ""},
		"vgpud was never there":           {0, ledger.TimeDevice{UnknownNs: 5e9}, timeline.Sample{}, Time{UnknownSeconds: 5}, Counted},
		"vgpud has not looked, a library": {1500, ledger.TimeDevice{}, timeline.Sample{}, Time{GPUSeconds: 1.5}, Metered},
		"counted, and none":               {0, ledger.TimeDevice{LookedNs: 1}, timeline.Sample{}, Time{}, Counted},
	} {
		now := Totals{Devices: []ledger.DeviceUsage{{BusyNs: c.busyMs * 1e6}}, Counted: []ledger.TimeDevice{c.counted}}.Latest(0, c.looked)
		if got, source := Spent(0, now); got != c.want || source != c.source {
			t.Errorf("%s: %+v %q, want %+v %q", name, got, source, c.want, c.source)
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

func TestARecordSaysWhoCounted(t *testing.T) {
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
	spend(t, dir.Ledger(g.Job), 0, 0, 1<<20, 0)
	text, err := json.Marshal(of())
	if err != nil || strings.Contains(string(text), "unknown") || strings.Contains(string(text), "inexact") {
		t.Errorf("the library's count: %s, %v", text, err)
	}
	count(t, dir, g, ledger.TimeDevice{BusyNs: 7e9, LookedNs: 1, UnknownNs: 2e8, Flags: ledger.TimeInexact})
	rec := of()
	want := Time{GPUSeconds: 7.01, UnknownSeconds: 0.2, Inexact: true, WaitedSeconds: 0.021}
	if d := rec.Devices[0]; !cmp.Equal(d.Time, want) || d.Source() != Metered {
		t.Errorf("%+v %q", d.Time, d.Source())
	}
	if d := rec.Devices[1]; d.Source() != Metered {
		t.Errorf("a slice that vgpud has not looked at is %q", d.Source())
	}
}

// While vgpud is away that keeps a job's share, the time since its last look is what nobody counted.
func TestWhileVgpudIsAwayUnknownGrows(t *testing.T) {
	looked := func(ago time.Duration, flags uint32) ledger.TimeDevice {
		return ledger.TimeDevice{BusyNs: 5e9, UnknownNs: 1e9, LookedNs: uint64(ledger.TimeNow() - ago), Flags: flags}
	}
	free := twoSlices()
	free.Slices[0].SMPercent = 0
	for name, c := range map[string]struct {
		page    ledger.TimeDevice
		keeper  ledger.Keeper
		runs    bool
		program time.Duration // for how long one has been there; 0: none is
		grant   grant.Grant
		want    time.Duration
	}{
		"it is away":                                {looked(time.Minute, 0), ledger.KeptByVgpud, false, 0, twoSlices(), 61 * time.Second},
		"it is there":                               {looked(time.Minute, 0), ledger.KeptByVgpud, true, 0, twoSlices(), time.Second},
		"the library keeps it":                      {looked(time.Minute, 0), ledger.KeptByLibrary, false, 0, twoSlices(), time.Second},
		"it had no work":                            {looked(time.Minute, ledger.TimeIdle), ledger.KeptByVgpud, false, 0, twoSlices(), time.Second},
		"it had no work, and has some since":        {looked(time.Minute, ledger.TimeIdle), ledger.KeptByVgpud, false, 20 * time.Second, twoSlices(), 21 * time.Second},
		"it had no work, and a program has begun":   {looked(time.Minute, ledger.TimeIdle), ledger.KeptByVgpud, true, 20 * time.Second, twoSlices(), time.Second},
		"it never was there":                        {ledger.TimeDevice{}, ledger.KeptByVgpud, false, 0, twoSlices(), 3 * time.Hour},
		"it never was there, and there is no share": {ledger.TimeDevice{}, ledger.KeptByVgpud, false, 0, free, 0},
	} {
		dir := jobFolder(t, c.grant)
		count(t, dir, c.grant, c.page)
		if err := ledger.WriteBoard(dir.Board(c.grant.Slices[0].Device), ledger.Board{KeptBy: c.keeper}); err != nil {
			t.Fatal(err)
		}
		if c.program > 0 {
			runProgram(t, dir, c.grant, c.program)
		}
		if c.runs {
			held, err := os.Create(dir.VgpudLock())
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
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
