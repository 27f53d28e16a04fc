// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"math"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// columns are what the numbers of a row are; zeros at its end are left out. "gpu" counts the lines of "gpus", from 0; "since_ms" and "ends" are
// milliseconds and seconds since 1970, 0 where it is not known; "elastic" is 0 or 1, "priority" 1 for latency and -1 for batch.
// "turns_layout" is of earlier builds, and says nothing. A build from before a column takes a file that has it for a damaged one, and makes its state from the grants.
var columns = [...]string{"job", "uid", "gpu", "mem_mib", "since_ms", "turns_layout", "sm_percent", "ends", "restart", "elastic", "most_mib", "priority"}

const fewest = 4 // numbers in a row: up to mem_mib

// gpu is a line of "gpus": what slices on it repeat.
type gpu struct {
	Device device.UUID      `json:"device"`
	Index  device.NVMLIndex `json:"nvml_index"`
	Minor  device.Minor     `json:"minor"`
}

// maxGPUs is more GPUs than a node has, and the parts of them. A table beyond it is made anew, without those that nobody holds.
const maxGPUs = 128

func (s *Slice) on() gpu { return gpu{Device: s.Device, Index: s.Index, Minor: s.Minor} }

// gpusOf are those that are known and those that the slices are on.
func gpusOf(known []gpu, held []Slice) []gpu {
	if len(known) > maxGPUs {
		known = nil
	}
	for i := range held {
		if on := held[i].on(); !slices.Contains(known, on) {
			known = append(known, on)
		}
	}
	return known
}

// row is a slice on the gpu of this number.
func (s *Slice) row(gpu int) []int64 {
	elastic := int64(0)
	if s.Elastic {
		elastic = 1
	}
	row := []int64{int64(s.Job), int64(s.UID), int64(gpu), s.MemMiB, int64(s.Since), 0, int64(s.SMPercent), s.Ends, int64(s.Restart),
		elastic, s.MostMiB, int64(s.Priority)}
	for len(row) > fewest && row[len(row)-1] == 0 {
		row = row[:len(row)-1]
	}
	return row
}

// ofRow is the slice that a row says, unless no writer would have granted it.
func ofRow(row []int64, gpus []gpu) (s Slice, ok bool) {
	if len(row) < fewest || len(row) > len(columns) {
		return Slice{}, false
	}
	var r [len(columns)]int64
	copy(r[:], row)
	job, uid, on, elastic, priority := r[0], r[1], r[2], r[9], r[11]
	if job == 0 || uint64(job|uid) > math.MaxUint32 || uint64(on) >= uint64(len(gpus)) || uint64(elastic) > 1 ||
		priority != int64(int8(priority)) || !device.Priority(priority).IsKnown() {
		return Slice{}, false
	}
	gpu := gpus[on]
	s = Slice{Job: uint32(job), UID: uint32(uid), Since: Millis(r[4]), Ends: r[7], Restart: int(r[8]), Elastic: elastic == 1,
		Slice: device.Slice{Device: gpu.Device, Index: gpu.Index, Minor: gpu.Minor, MemMiB: r[3], SMPercent: int(r[6]), MostMiB: r[10], Priority: device.Priority(priority)}}
	return s, s.Device != "" && s.MemMiB > 0
}
