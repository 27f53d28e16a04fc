// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
)

// parts are those of this node.
func parts(n node) keeper.Parts {
	auditor := audit.Here(n.cfg.Run())
	here := &keeper.Here{Store: n.store, Auditor: auditor}
	return keeper.Parts{
		Log: n.log, Run: n.cfg.Run(), BootID: n.store.BootID, Cheaters: n.cfg.Cheaters, Burst: n.cfg.LatencyBurst,
		Driver: func() (keeper.Driver, error) { return keeper.OpenDriver(n.cfg.DeviceDir) },
		Node:   here.Look,
		Sampler: func() (keeper.Sampler, error) {
			return keeper.OpenSampler(n.cfg.NVMLLibrary, n.cfg.DeviceDir, n.store, auditor)
		},
		StartOf: auditor.StartOf, Step: here.Step, Attached: here.Attached, Refuse: here.Refuse, Accept: here.Accept,
		Changes: func() (keeper.Changes, error) { return keeper.WatchRun(n.cfg.Run()) },
		Clock:   ledger.TimeNow,
	}
}

func enabler(cfg config.Config) keeper.Enabler {
	return keeper.NewEnabler(func() (keeper.Driver, error) { return keeper.OpenDriver(cfg.DeviceDir) })
}
