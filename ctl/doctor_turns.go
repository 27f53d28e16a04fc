// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// turns looks for jobs whose claims their own processes do not use, or others cannot read. The prolog makes them
// right, so somebody has changed them.
func (d *doctor) turns() {
	dir := d.config.Run()
	current, err := state.Of(d.config, d.bootID, hclog.NewNullLogger()).Read()
	if err != nil {
		return // what is wrong with the state is said there
	}
	jobs := make(map[uint32]bool)
	bad, first := 0, ""
	for _, s := range current.Slices {
		if jobs[s.Job] {
			continue
		}
		if g, err := grant.Read(dir.Grant(s.Job)); err == nil && (g.Whole || g.TurnsLayout != 0 && g.TurnsLayout != ledger.VgpudVersion) {
			continue // it runs without the library, or with one of another release
		}
		jobs[s.Job] = true
		if err := ledger.CheckClaims(dir.Claims(s.Job), s.UID); err != nil {
			bad++
			if first == "" {
				first = fmt.Sprintf("job %d: %v", s.Job, err)
			}
		}
	}
	if bad > 0 {
		d.fail("turns", "ask the job's user: its programs are refused CUDA until it ends, and neighbours do not wait for it",
			"%s with claims that cannot be used, %s", plural(bad, "job"), first)
		return
	}
	d.ok("turns", "claims of %s can be used", plural(len(jobs), "job"))
}
