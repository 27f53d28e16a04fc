// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlotsOfALedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), LedgerFile)
	if _, err := ReadSlots(path, 12, 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := Create(path, 12, 2, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	if slots, err := ReadSlots(path, 12, 2); err != nil || len(slots) != 0 {
		t.Errorf("a new one: %v, %v", slots, err)
	}
	var page ledgerPage
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := binary.Decode(data, binary.LittleEndian, &page); err != nil {
		t.Fatal(err)
	}
	page.Slot[0] = ledgerSlot{State: 1, PID: 30, PIDNS: 4711, UsedBytes: [MaxDevices]uint64{5, 6, 7}, MayTakeBytes: [MaxDevices]uint64{0, 2}}
	page.Slot[1] = ledgerSlot{State: 2, PID: 31}
	page.Slot[MaxProcs-1] = ledgerSlot{State: 1, PID: -1, UsedBytes: [MaxDevices]uint64{math.MaxUint64}, MayTakeBytes: [MaxDevices]uint64{1}}
	write := func() {
		t.Helper()
		data, err := binary.Append(nil, binary.LittleEndian, page)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	want := []Slot{{PID: 30, PIDNS: 4711, Bytes: []uint64{5, 8}}, {PID: -1, Bytes: []uint64{math.MaxUint64, 0}}}
	got, err := ReadSlots(path, 12, 2)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if got, err := ReadSlots(path, 12, 1000); err != nil || len(got[0].Bytes) != MaxDevices {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ReadSlots(path, 13, 2); !errors.Is(err, ErrLayout) {
		t.Errorf("another job's: %v", err)
	}
	if err := os.Truncate(path, int64(binary.Size(page))-1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSlots(path, 12, 2); !errors.Is(err, ErrLayout) {
		t.Errorf("one that was cut: %v", err)
	}
}
