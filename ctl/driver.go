// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// driverStatus is what the driver says of a slice, beside what its ledger says.
type driverStatus struct {
	DriverMiB       *int64 `json:"driver_mib"`       // held by the job's processes; null: not known
	DriverProcesses *int   `json:"driver_processes"` // how many these are
	DifferenceMiB   *int64 `json:"difference_mib"`   // driver_mib less used_mib
	DriverProblem   string `json:"driver_problem,omitempty"`
}

// strangerStatus is a process that holds memory of a GPU without a slice of it.
type strangerStatus struct {
	PID  int    `json:"pid"`
	User string `json:"user"`
	MiB  *int64 `json:"mib"` // null: the driver does not say
}

// askDriver asks who holds memory of these GPUs.
func askDriver(cfg config.Config, uuids []device.UUID) (map[device.UUID]discover.Holders, error) {
	driver, err := audit.OpenDriver(cfg)
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	return driver.Holders(uuids)
}

// askable are the GPUs that who asks may be told something of: root of all that work, others of those with slices.
func askable(gpus []device.GPU, held []state.Slice, uid int) (uuids []device.UUID) {
	for _, s := range held {
		uuids = append(uuids, s.Device)
	}
	for _, gpu := range gpus {
		if uid == 0 && gpu.Lost == "" {
			uuids = append(uuids, gpu.UUID)
		}
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
}

// addDriver puts the driver's word beside the ledgers'.
func (l *looker) addDriver(status *nodeStatus, held []state.Slice, said driverAnswer) {
	if !said.asked {
		return
	}
	if said.err != nil {
		status.DriverProblem = said.err.Error()
		status.unreadable[fromDriver] = true
		return
	}
	auditor := audit.Here(l.cfg.Run())
	auditor.Grant = l.grantOf
	result := auditor.Totals(held, said.holders)
	for i := range status.Slices {
		s := &status.Slices[i]
		if total, told := result.Slices[audit.Slice{Job: s.Job, Device: s.Device}]; told {
			s.driverStatus, s.held = driverOf(total, s.UsedMiB), &total
		}
	}
	for i := range status.GPUs {
		g := &status.GPUs[i]
		g.Others = strangersOf(result.Strangers[g.UUID])
		if others, told := result.Others[g.UUID]; told && others.Unknown == "" {
			mib := usage.MiB(others.Bytes)
			g.OthersMiB, g.others = &mib, &others
		}
	}
}

func strangersOf(found []audit.Stranger) (strangers []strangerStatus) {
	for _, s := range found {
		stranger := strangerStatus{PID: s.PID, User: userName(s.UID)}
		if mib := usage.MiB(s.Bytes); s.Known {
			stranger.MiB = &mib
		}
		strangers = append(strangers, stranger)
	}
	return strangers
}

// saysOthers is the sentence about processes that have no slice of the GPU; "" when there are none.
func (g gpuStatus) saysOthers() string {
	if len(g.Others) == 0 {
		return ""
	}
	// As many as a line has room for.
	const most = 4
	var who []string
	for _, s := range g.Others[:min(len(g.Others), most)] {
		who = append(who, fmt.Sprintf("%d (%s)", s.PID, s.User))
	}
	if len(g.Others) > most {
		who = append(who, fmt.Sprintf("%d more", len(g.Others)-most))
	}
	held := "memory is"
	if g.OthersMiB != nil {
		held = fmt.Sprintf("%d MiB are", *g.OthersMiB)
	}
	return fmt.Sprintf("GPU %d: %s held by processes that have no slice of it: %s", g.Index, held, strings.Join(who, ", "))
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
		notes = append(notes, "the driver's figures are not known: "+status.DriverProblem)
	}
	said := make(map[string]bool)
	for _, s := range status.Slices {
		note := fmt.Sprintf("the driver's figures of GPU %d are not known: %s", s.Index, s.DriverProblem)
		if s.DriverProblem != "" && !said[note] {
			said[note] = true
			notes = append(notes, note)
		}
	}
	for _, g := range status.GPUs {
		if note := g.saysOthers(); note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}
