// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// strangers looks for processes that hold memory of a GPU and have no slice of it.
func (d *doctor) strangers() {
	if d.inventory == nil || os.Geteuid() != 0 {
		return // without an inventory, that is said; without root, nobody is told of others' processes
	}
	current, err := state.Store{Dir: d.config.Run(), BootID: d.bootID, Log: hclog.NewNullLogger()}.Read()
	if err != nil {
		return // what is wrong with the state is said there
	}
	var status nodeStatus
	for _, gpu := range d.inventory.GPUs {
		status.GPUs = append(status.GPUs, gpuStatus{GPU: gpu})
	}
	addDriver(d.config, &status, d.inventory.GPUs, current.Slices)
	if status.DriverProblem != "" {
		d.ok("strangers", "who holds memory of the GPUs is not known: %s", status.DriverProblem)
		return
	}
	healthy := true
	for _, gpu := range status.GPUs {
		if says := gpu.saysOthers(); says != "" {
			healthy = false
			d.fail("strangers", "look at what they are: a user's processes outside of a job, or ones that have left theirs, are ended with kill", "%s", says)
		}
	}
	if healthy {
		d.ok("strangers", "no process is known that holds memory of a GPU and has no slice of it")
	}
}
