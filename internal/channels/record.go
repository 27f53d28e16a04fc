// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import "encoding/binary"

var le = binary.LittleEndian

const recordBytes = 32

// Record is one entry of the log, as cl90cd.h and cl90cdfecs.h have it.
type Record struct {
	Kind    uint16
	Tag     uint8
	Serial  uint16 // counts on by one, also over those that were dropped, and wraps
	Channel uint32 // the driver's number of it, which is no handle
	PID     uint32 // in the first namespace; 0 for who may not know, Kernel for the kernel's own
	AtNS    int64  // of the GPU's clock; an END may be older than a time that was read before it
}

// Kernel is the PID of contexts of the kernel's own.
const Kernel = 0xffffffff

func parseRecord(b []byte) Record {
	return Record{Kind: le.Uint16(b), Tag: b[8], Serial: le.Uint16(b[10:]), Channel: le.Uint32(b[12:]), PID: le.Uint32(b[16:]), AtNS: int64(le.Uint64(b[24:]))}
}

// Kinds and tags of records. Root gets the simple tags; the other tags mean the same.
const (
	kindSwitch, kindSwitchOld = 2, 134

	tagSaveEnd, tagStart         = 3, 5
	tagSimpleStart, tagSimpleEnd = 6, 7
)

// IsSwitch says that it is of a switch at all; Serial counts these alone.
func (r Record) IsSwitch() bool { return r.Kind == kindSwitch || r.Kind == kindSwitchOld }

// Starts says that a context came on.
func (r Record) Starts() bool { return r.IsSwitch() && (r.Tag == tagStart || r.Tag == tagSimpleStart) }

// Ends says that the context on the GPU has left: a context that is gone has another's number in its last record.
func (r Record) Ends() bool { return r.IsSwitch() && (r.Tag == tagSaveEnd || r.Tag == tagSimpleEnd) }
