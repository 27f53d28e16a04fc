// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// nvmlWait bounds what a GPU that does not answer can make a status wait.
const nvmlWait = 10 * time.Second

// driverStatus is what the driver says of a slice, beside what its ledger says.
type driverStatus struct {
	DriverMiB       *int64 `json:"driver_mib"`       // held by the job's processes; null: not known
	DriverProcesses *int   `json:"driver_processes"` // how many these are
	DifferenceMiB   *int64 `json:"difference_mib"`   // driver_mib less used_mib
	DriverProblem   string `json:"driver_problem,omitempty"`
}

// askDriver asks who holds memory of the GPUs that have slices.
func askDriver(cfg config.Config, slices []state.Slice) (map[device.UUID]discover.Holders, error) {
	// In a job, NVML is the interposer's: it would answer with the ledger's own numbers.
	if interposed(cfg.Library) {
		return nil, errors.New("this is a job with a slice, whose NVML shows what the ledger says")
	}
	var uuids []device.UUID
	seen := make(map[device.UUID]bool)
	for _, s := range slices {
		if !seen[s.Device] {
			seen[s.Device] = true
			uuids = append(uuids, s.Device)
		}
	}
	type answer struct {
		holders map[device.UUID]discover.Holders
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		lib, err := discover.Library(cfg.NVMLLibrary)
		if err != nil {
			done <- answer{nil, err}
			return
		}
		holders, err := discover.Processes(lib, uuids)
		done <- answer{holders, err}
	}()
	select {
	case a := <-done:
		return a.holders, a.err
	case <-time.After(nvmlWait):
		return nil, fmt.Errorf("NVML has not answered for %s", nvmlWait)
	}
}

// interposed says whether this process runs under the interposer.
func interposed(library string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && bytes.Contains(maps, []byte("/"+filepath.Base(library)+"\n"))
}

// addDriver puts the driver's word beside the ledgers'.
func addDriver(cfg config.Config, status *nodeStatus, slices []state.Slice) {
	if len(slices) == 0 {
		return
	}
	holders, err := askDriver(cfg, slices)
	if err != nil {
		status.DriverProblem = err.Error()
		return
	}
	result := audit.Here(cfg.Run()).Totals(slices, holders)
	for i := range status.Slices {
		s := &status.Slices[i]
		if total, told := result.Slices[audit.Slice{Job: s.Job, Device: s.Device}]; told {
			s.driverStatus = driverOf(total, s.UsedMiB)
		}
	}
	for i := range status.GPUs {
		if others, told := result.Others[status.GPUs[i].UUID]; told && others.Unknown == "" {
			mib := usage.MiB(others.Bytes)
			status.GPUs[i].OthersMiB = &mib
		}
	}
}

func driverOf(total audit.Total, usedMiB *int64) driverStatus {
	if total.Unknown != "" {
		return driverStatus{DriverProblem: total.Unknown}
	}
	mib := usage.MiB(total.Bytes)
	driver := driverStatus{DriverMiB: &mib, DriverProcesses: &total.Processes}
	if usedMiB != nil {
		difference := mib - *usedMiB
		driver.DifferenceMiB = &difference
	}
	return driver
}

// difference prints a signed number that may not be known.
func difference(mib *int64) string {
	switch {
	case mib == nil:
		return "-"
	case *mib == 0:
		return "0"
	}
	return fmt.Sprintf("%+d", *mib)
}

// driverNotes are the lines below the table of slices: why a figure of the driver is not known, and what
// processes of no slice hold.
func driverNotes(status nodeStatus) (notes []string) {
	if status.DriverProblem != "" {
		notes = append(notes, "what the driver says is not known: "+status.DriverProblem)
	}
	said := make(map[string]bool)
	for _, s := range status.Slices {
		note := fmt.Sprintf("what the driver says of GPU %d is not known: %s", s.Index, s.DriverProblem)
		if s.DriverProblem != "" && !said[note] {
			said[note] = true
			notes = append(notes, note)
		}
	}
	for _, g := range status.GPUs {
		if g.OthersMiB != nil && *g.OthersMiB > 0 {
			notes = append(notes, fmt.Sprintf("GPU %d: %d MiB are held by processes that have no slice of it", g.Index, *g.OthersMiB))
		}
	}
	return notes
}
