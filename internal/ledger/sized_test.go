// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// grow makes of a page one of a build that knows more.
func grow(t *testing.T, path string) (tail []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tail = bytes.Repeat([]byte{0xa5}, 700)
	if _, err := file.Write(tail); err != nil {
		t.Fatal(err)
	}
	return tail
}

func wantTail(t *testing.T, path string, tail []byte) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || !bytes.HasSuffix(text, tail) {
		t.Errorf("%v; what only a later build knows in %s has changed", err, path)
	}
}

// A later build made the pages: what this one knows of them is read and changed, and nothing else.
func TestLongerPagesAreReadAndChanged(t *testing.T) {
	dir := t.TempDir()
	limits, page := Limits{Job: 12, Devices: []LimitsDevice{{UUID: "GPU-a", StepMemBytes: 7}}}, filepath.Join(dir, "limits")
	if err := WriteLimits(page, limits); err != nil {
		t.Fatal(err)
	}
	tail := grow(t, page)
	limits.Devices[0].StepMemBytes = 8
	if err := ChangeLimits(page, limits); err != nil {
		t.Error(err)
	}
	limits.Generation = 1
	got, err := ReadLimits(page)
	if diff := cmp.Diff(limits, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if job, err := ReadForeignJob(page); err != nil || job != 12 {
		t.Errorf("of job %d, %v", job, err)
	}
	wantTail(t, page, tail)

	counted, open := newTime(t, 1)
	tail = grow(t, counted)
	if err := open.Put([]TimeDevice{{BusyNs: 5}}); err != nil {
		t.Error(err)
	}
	wantTime(t, counted, []TimeDevice{{BusyNs: 5}})
	wantTail(t, counted, tail)

	book, groups := filepath.Join(dir, "ledger"), newGroups(t)
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if err := Create(book, 12, 1, uid, gid); err != nil {
		t.Fatal(err)
	}
	grow(t, book)
	grow(t, groups)
	if usage, err := Read(book, 12, Bounds{Bytes: []uint64{1}}); err != nil || len(usage.Devices) != 1 {
		t.Errorf("%+v, %v", usage, err)
	}
	if _, err := ReadSlots(book, 12, 1); err != nil {
		t.Error(err)
	}
	writeDown(t, groups, 3, processOf(aGroup))
	if got, err := ReadGroups(groups, 12); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// counted makes a ledger of a build with so many figures: the nth of the job's slice is n, and that of its step 10 and n.
func counted(t *testing.T, figures int) (path string) {
	t.Helper()
	head, err := binary.Append(nil, binary.LittleEndian, ledgerTotals{Magic: LedgerMagic, LayoutVersion: LayoutVersion, JobID: 12, DeviceCount: 1, SlotsHigh: 1,
		SizeBytes: uint32(LedgerLeast + (figures-FirstFigures)*FigureBytes)})
	if err != nil {
		t.Fatal(err)
	}
	add := func(data []byte, from uint64) []byte {
		for n := range figures {
			data = append(binary.LittleEndian.AppendUint64(data, from+uint64(n+1)), make([]byte, figureBytes-8)...)
		}
		return append(data, make([]byte, figureBytes)...) // from when on the cap covers what was used
	}
	data := add(head[:figuresAt], 0)
	data = append(binary.LittleEndian.AppendUint32(data, 1), 7, 0, 0, 0) // step 7
	data = add(data, 10)
	data = append(data, make([]byte, (MaxSteps-1)*(8+(figures+1)*figureBytes))...)
	slot, err := binary.Append(nil, binary.LittleEndian, ledgerSlot{State: 1, PID: int32(os.Getpid()), UsedBytes: [MaxDevices]uint64{5}})
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, slot...)
	data = append(data, make([]byte, (MaxProcs-1)*slotBytes+figureBytes)...)
	path = filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A build may count more, or less, than this one: what both count is read.
func TestLedgersOfMoreOrFewerFigures(t *testing.T) {
	for _, figures := range []int{Figures, Figures + 1, Figures + 20} {
		path, bounds := counted(t, figures), Bounds{Bytes: []uint64{100}}
		job, step := []DeviceUsage{{UsedBytes: 1, PeakBytes: 2, Refusals: 3}}, []DeviceUsage{{UsedBytes: 11, PeakBytes: 12, Refusals: 13}}
		got, err := Read(path, 12, bounds)
		if diff := cmp.Diff(Usage{Devices: job, Steps: []StepUsage{{Step: 7, Devices: step}}}, got); diff != "" || err != nil {
			t.Errorf("%d figures: %v %s", figures, err, diff)
		}
		if devices, err := ReadDevices(path, 12, bounds); err != nil || !cmp.Equal(job, devices) {
			t.Errorf("%d figures: %+v, %v", figures, devices, err)
		}
		if slots, err := ReadSlots(path, 12, 1); err != nil || len(slots) != 1 || slots[0].Bytes[0] != 5 {
			t.Errorf("%d figures: %+v, %v", figures, slots, err)
		}
		if err := os.Truncate(path, LedgerLeast); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSlots(path, 12, 1); (err == nil) != (figures == Figures) {
			t.Errorf("%d figures, cut: %v", figures, err)
		}
	}
	path := counted(t, Figures)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, int64(sizeAt)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 12, Bounds{Bytes: []uint64{100}}); !errors.Is(err, ErrLayout) {
		t.Errorf("a ledger that says that it has 4 GiB: %v", err)
	}
}

// An earlier build made the page: what it did not know of is zero.
func TestWhatAPageHasNotIsZero(t *testing.T) {
	data, err := encodeLimits(Limits{Job: 12, PagesDir: "/pages"})
	if err != nil {
		t.Fatal(err)
	}
	later := struct {
		limitsPage
		Later [4]uint64
	}{Later: [4]uint64{1, 2, 3, 4}}
	if err := decodePage(data, LimitsLeast, &later); err != nil || later.JobID != 12 || later.Later != [4]uint64{} {
		t.Errorf("%+v, %v", later, err)
	}
	if err := decodePage(data[:LimitsLeast-1], LimitsLeast, &later); err == nil {
		t.Error("a page that was cut is read")
	}
}
