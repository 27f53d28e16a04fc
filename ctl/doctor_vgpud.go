// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// vgpud looks at what vgpud needs, and at what it does with the slices that are here.
func (d *doctor) vgpud(ctx context.Context) {
	if d.config.SharesBy != config.SharesVgpud {
		return
	}
	d.findings = append(d.findings, sitecheck.Vgpud(ctx, d.config, d.inventory)...)
	current, err := state.Of(d.config, d.bootID, hclog.NewNullLogger()).Read()
	if err != nil {
		return // what is wrong with the state is said there
	}
	d.keptByLibrary(current.Slices)
	if runs, err := state.IsLocked(d.config.Run().VgpudLock()); err == nil && runs {
		d.looksAt(current.Slices)
	}
}

// keptByLibrary names the jobs that keep a GPU with the library: they were started with a release that did not know vgpud.
func (d *doctor) keptByLibrary(held []state.Slice) {
	var jobs []string
	for _, s := range held {
		if name := strconv.FormatUint(uint64(s.Job), 10); s.Turns < ledger.TurnsVersion && !slices.Contains(jobs, name) {
			jobs = append(jobs, name)
		}
	}
	if len(jobs) > 0 {
		d.warn("vgpud", "nothing: it changes when they have ended", "the library keeps the shares on the GPUs of %s, which an older release started: %s",
			plural(len(jobs), "job"), strings.Join(jobs, ", "))
	}
}

// looksAt finds slices whose programs are there and at which vgpud, which runs, has not looked.
func (d *doctor) looksAt(held []state.Slice) {
	run, now, late := d.config.Run(), monotonic(), []string(nil)
	for _, s := range held {
		g, err := grant.Read(run.Grant(s.Job))
		if err != nil || g.Restart != s.Restart || sharesBy(run, s.Device) != keptByVgpud {
			continue
		}
		groups, err := ledger.ReadGroups(run.Groups(s.Job), s.Job)
		if err != nil || !slices.ContainsFunc(groups, func(p ledger.GroupsProcess) bool { return len(p.Groups) > 0 }) {
			continue
		}
		used, err := usage.Collect(run, g)
		at := slices.IndexFunc(g.Slices, func(slice device.Slice) bool { return slice.Device == s.Device })
		if err != nil || at < 0 || used.Devices[at].UsedBytes == 0 { // what is written down may be of processes that were killed
			continue
		}
		if c := countedOf(used.Counted[at], now); c == nil {
			late = append(late, fmt.Sprintf("job %d on GPU %d, never", s.Job, s.Index))
		} else if c.Percent == nil {
			late = append(late, fmt.Sprintf("job %d on GPU %d, last %.0f s ago", s.Job, s.Index, c.LookedSeconds))
		}
	}
	if len(late) > 0 {
		d.fail("vgpud", "its log says why; systemctl restart slurm-vgpu-vgpud.service does no program any harm",
			"it runs and does not look at programs that are there, by their own word: %s", strings.Join(late, ", "))
	}
}
