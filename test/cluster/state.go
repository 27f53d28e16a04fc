// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Slices are those that a node's state file has, as they were granted.
func (c *Cluster) Slices(node string) ([]state.Slice, error) {
	return SlicesIn(c.Home.Path("run", node))
}

// SlicesIn are those of a run directory.
func SlicesIn(runDir string) ([]state.Slice, error) {
	boot, err := inventory.BootID()
	if err != nil {
		return nil, err
	}
	current, err := state.Store{Dir: rundir.Dir(runDir), BootID: boot, Log: hclog.NewNullLogger()}.Read()
	return current.Slices, err
}
