// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Kind is how memory of a GPU is held that no ledger accounts for.
type Kind string

// The kinds of stray use.
const (
	NoJob       Kind = "no-job"        // by a process of no job
	NoSlice     Kind = "no-slice"      // by a process whose job has no slice of that GPU
	NotInLedger Kind = "not-in-ledger" // by a process of the job that its ledger does not know
	Unaccounted Kind = "unaccounted"   // by one, or by a whole job, whose ledger says less
	OverLimit   Kind = "over-limit"    // by all processes of a job together, more than its slice
)

// tolerance is what the driver may take for a process before the library finds it: the heap of a kernel that has
// not come back, 140 to 150 MiB on an H200.
const tolerance = 256 << 20

// Stray is use of a GPU that no ledger accounts for.
type Stray struct {
	Kind   Kind             `json:"kind"`
	Device device.UUID      `json:"device"`
	Index  device.NVMLIndex `json:"nvml_index"`
	PID    int              `json:"pid,omitempty"` // 0: of all that a job holds together
	Name   string           `json:"name,omitempty"`
	UID    uint32           `json:"uid"`
	Job    uint32           `json:"job,omitempty"` // 0: of none that is known
	MiB    *int64           `json:"mib"`           // held, by the driver's word; null: it does not say
	// AccountedMiB is what the ledger says of the process, or the slice's limit.
	AccountedMiB int64 `json:"accounted_mib"`

	start uint64
}

// key tells whether two looks saw the same.
type key struct {
	kind   Kind
	device device.UUID
	pid    int
	start  uint64
	job    uint32
}

func (s Stray) key() key { return key{s.Kind, s.Device, s.PID, s.start, s.Job} }

// Says is the stray in words.
func (s Stray) Says() string {
	switch s.Kind {
	case NoJob:
		return "is of no job"
	case NoSlice:
		if s.Job == 0 {
			return "is of a job without a slice"
		}
		return "is of a job without a slice of this GPU"
	case NotInLedger:
		return "is not in its job's ledger"
	case Unaccounted:
		if s.PID == 0 {
			return fmt.Sprintf("holds more than the %d MiB that its ledger says, all processes together", s.AccountedMiB)
		}
		return fmt.Sprintf("holds more than the %d MiB that its job's ledger says", s.AccountedMiB)
	case OverLimit:
		return fmt.Sprintf("holds more than its %d MiB, all processes together", s.AccountedMiB)
	}
	return string(s.Kind)
}

// Ends says that the job of a stray is cancelled where strays are. A process with less in its ledger than it holds,
// in a job within its slice, takes nothing from anybody.
func (s Stray) Ends() bool { return s.Job != 0 && s.Kind != NoJob && s.Kind != Unaccounted }

func (s *Stray) hold(bytes uint64) {
	mib := usage.MiB(bytes)
	s.MiB = &mib
}
