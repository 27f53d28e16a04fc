// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"
)

// Slot is what one process says that it holds of the job's slices, in the job's ledger.
type Slot struct {
	PID        int32    // in its own pid namespace
	PIDNS      uint64   // that namespace's inode; 0: not known
	StartTicks uint64   // field 22 of /proc/PID/stat; 0: not known
	Bytes      []uint64 // of each slice: charged, or reserved
}

// ReadSlots reads the slots of a job's processes, as bounded copies. They are the job's own word.
func ReadSlots(path string, job uint32, devices int) ([]Slot, error) {
	fd, err := openPage(path, LedgerLeast)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	defer unix.Close(fd)
	head, slotsAt, err := readBefore(fd, path, totalsBytes)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	data := make([]byte, MaxProcs*slotBytes)
	n, err := unix.Pread(fd, data, slotsAt)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", &os.PathError{Op: "read", Path: path, Err: err})
	}
	slots, err := decodeSlots(head, data[:n], job, devices)
	if err != nil {
		return nil, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return slots, nil
}

// decodeSlots looks at all slots: how many were ever used is what the job says too.
func decodeSlots(head, data []byte, job uint32, devices int) (slots []Slot, err error) {
	if len(data) < MaxProcs*slotBytes {
		return nil, fmt.Errorf("%w: its slots have %d bytes, want %d", ErrLayout, len(data), MaxProcs*slotBytes)
	}
	if _, err := decodeTotals(head, job, &Bounds{}, nil); err != nil {
		return nil, err
	}
	for _, raw := range slotsOf(data) {
		slot := Slot{PID: raw.PID, PIDNS: raw.PIDNS, StartTicks: raw.StartTicks}
		for i := range min(devices, MaxDevices) {
			slot.Bytes = append(slot.Bytes, atMost(raw.UsedBytes[i], raw.MayTakeBytes[i]))
		}
		slots = append(slots, slot)
	}
	return slots, nil
}

var slotBytes = binary.Size(ledgerSlot{})

// slotsOf are those in use of a ledger's slots, by their place. What is no whole slot is none.
func slotsOf(data []byte) iter.Seq2[int, ledgerSlot] {
	return func(yield func(int, ledgerSlot) bool) {
		for i := range min(len(data)/slotBytes, MaxProcs) {
			rest := data[i*slotBytes:]
			if binary.LittleEndian.Uint32(rest) != 1 { // state
				continue
			}
			var raw ledgerSlot
			if _, err := binary.Decode(rest, binary.LittleEndian, &raw); err != nil || !yield(i, raw) {
				return
			}
		}
	}
}
