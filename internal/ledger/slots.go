// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Slot is what one process says that it holds of the job's slices, in the job's ledger.
type Slot struct {
	PID   int32    // in its own pid namespace
	PIDNS uint64   // that namespace's inode; 0: not known
	Bytes []uint64 // of each slice: charged, or reserved
}

// ReadSlots reads the slots of a job's processes, as bounded copies. They are the job's own word.
func ReadSlots(path string, job uint32, devices int) ([]Slot, error) {
	data, err := readBounded(path, binary.Size(ledgerPage{}))
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	slots, err := decodeSlots(data, job, devices)
	if err != nil {
		return nil, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return slots, nil
}

// decodeSlots looks at all slots: how many were ever used is what the job says too.
func decodeSlots(data []byte, job uint32, devices int) (slots []Slot, err error) {
	if want := binary.Size(ledgerPage{}); len(data) < want {
		return nil, fmt.Errorf("%w: %d bytes, want %d", ErrLayout, len(data), want)
	}
	if _, err := decode(data, job, Bounds{}); err != nil {
		return nil, err
	}
	each := binary.Size(ledgerSlot{})
	for rest := data[binary.Size(ledgerHead{}):][:maxProcs*each]; len(rest) > 0; rest = rest[each:] {
		if binary.LittleEndian.Uint32(rest) != 1 { // state
			continue
		}
		var raw ledgerSlot
		if _, err := binary.Decode(rest, binary.LittleEndian, &raw); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLayout, err)
		}
		slot := Slot{PID: raw.PID, PIDNS: raw.PIDNS}
		for i := range min(devices, MaxDevices) {
			slot.Bytes = append(slot.Bytes, atMost(raw.UsedBytes[i], raw.MayTakeBytes[i]))
		}
		slots = append(slots, slot)
	}
	return slots, nil
}

// atMost adds numbers that anybody may have written.
func atMost(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
