// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

// Where the driver has a figure of the job itself, memory counts that no process in its lists has.
func TestWhatNoProcessHasIsTheJobs(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, false, gpu)
	s.process(10, 1000, 7)
	s.slot(7, 0, 10, 0, 300*mib)
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 300*mib))}
	for told, want := range map[uint64][]string{0: nil, 500 * mib: nil, 900 * mib: {"unaccounted 0 0/7"}, 2000 * mib: {"over-limit 0 0/7"}} {
		s.told = map[Slice]uint64{{7, gpu}: told}
		s.want(want...)
	}
	s.looks = []map[device.UUID]discover.Holders{on()}
	s.told = map[Slice]uint64{{7, gpu}: 900 * mib}
	s.want("unaccounted 0 0/7")
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 900*mib))} // of which the process is told
	s.want("unaccounted 10 0/7")
}
