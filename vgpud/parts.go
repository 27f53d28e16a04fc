// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
)

// parts are those of this node.
func parts(n node) keeper.Parts {
	auditor := audit.Here(n.cfg.Run())
	here := &keeper.Here{Store: n.store, Auditor: auditor}
	return keeper.Parts{
		Log: n.log, Run: n.cfg.Run(), BootID: n.store.BootID, Cheaters: n.cfg.Cheaters, Burst: n.cfg.LatencyBurst,
		Driver:  func() (keeper.Driver, error) { return keeper.OpenDriver(n.cfg.DeviceDir) },
		Node:    here.Look,
		Sampler: func() (keeper.Sampler, error) { return keeper.OpenSampler(n.cfg.NVMLLibrary, n.store, auditor) },
		StartOf: auditor.StartOf, Step: here.Step, Attached: here.Attached, Refuse: here.Refuse,
		Changes: func() (keeper.Changes, error) { return keeper.WatchRun(n.cfg.Run()) },
		Clock:   monotonic,
	}
}

// monotonic is the clock of the time pages, which go on after a restart.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every kernel has it
	return time.Duration(now.Nano())
}

func enabler(cfg config.Config) keeper.Enabler {
	return keeper.NewEnabler(func() (keeper.Driver, error) { return keeper.OpenDriver(cfg.DeviceDir) })
}
