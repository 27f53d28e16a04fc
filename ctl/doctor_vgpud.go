// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// vgpud looks at what vgpud needs, and at what it does with the slices that are here.
func (d *doctor) vgpud(ctx context.Context) {
	d.Findings = append(d.Findings, sitecheck.Vgpud(ctx, d.config, d.inventory)...)
	store := state.Of(d.config, d.bootID, hclog.NewNullLogger())
	refused := store.Refused()
	for _, gpu := range refused {
		d.Bad("vgpud", "its log has the answer of the driver; it tries again when it is begun anew", "the driver does not let it keep caps on %s: the library holds them there", gpu)
	}
	current, err := store.Read()
	if err != nil {
		return // what is wrong with the state is said there
	}
	if runs, err := trusted.IsLocked(d.config.Run().VgpudLock()); err == nil && runs {
		kept := d.keptSlices(current.Slices, refused)
		d.chores()
		d.looksAt(kept)
		d.setsSlices(kept)
		d.seesAll(kept)
	}
}

// chores finds commands that vgpud runs from time to time and that fail.
func (d *doctor) chores() {
	marks, _ := filepath.Glob(d.config.Run().VgpudFailed("*"))
	for _, path := range marks {
		name := filepath.Ext(path)[1:]
		command := name
		if name == "records" {
			command += " --flush" // without it they are only listed
		}
		if mark, err := os.Stat(path); err == nil {
			d.Bad("vgpud", "vgpuctl "+command+", as root, says why, and so does vgpud's log",
				"`vgpuctl %s`, which it runs from time to time, has failed since %s", name, mark.ModTime().Format(time.DateTime))
		}
	}
}

// keptSlice is a slice of a GPU whose shares vgpud keeps.
type keptSlice struct {
	job     uint32
	index   device.NVMLIndex
	counted *countedStatus // nil: vgpud has not looked at it
	here    bool           // a program of it is there, by its own word
}

func (d *doctor) keptSlices(held []state.Slice, refused []device.UUID) (kept []keptSlice) {
	run, now := d.config.Run(), ledger.TimeNow()
	for _, s := range held {
		g, err := grant.Read(run.Grant(s.Job))
		if err != nil || g.Restart != s.Restart || slices.Contains(refused, s.Device) {
			continue
		}
		used, err := usage.Collect(run, g)
		at := slices.IndexFunc(g.Slices, func(slice device.Slice) bool { return slice.Device == s.Device })
		if err != nil || at < 0 {
			continue
		}
		groups, err := ledger.ReadGroups(run.Groups(s.Job), s.Job)
		has := hasProgram(run, g, at, used, now)
		// A written figure may belong to a process that was killed: such a process has no memory. A ledger that its user has spoiled hides that.
		here := err == nil && (has || used.Spoiled != nil) && slices.ContainsFunc(groups, func(p ledger.GroupsProcess) bool { return len(p.Groups) > 0 })
		kept = append(kept, keptSlice{s.Job, s.Index, countedOf(used.Counted[at], has, now), here})
	}
	return kept
}

// looksAt finds slices whose programs are there and at which vgpud, which runs, has not looked.
func (d *doctor) looksAt(kept []keptSlice) {
	var late []string
	for _, s := range kept {
		switch {
		case s.here && s.counted == nil:
			late = append(late, fmt.Sprintf("job %d on GPU %d, never", s.job, s.index))
		case s.here && s.counted.Idle:
			late = append(late, fmt.Sprintf("job %d on GPU %d, without a process that it has seen", s.job, s.index))
		case s.here && s.counted.Percent == nil:
			late = append(late, fmt.Sprintf("job %d on GPU %d, last %.0f s ago", s.job, s.index, s.counted.LookedSeconds))
		}
	}
	if len(late) > 0 {
		d.Bad("vgpud", "its log says why; it may be restarted at any time, which does programs no harm",
			"it runs and does not look at programs that are there, by their own word: %s", strings.Join(late, ", "))
	}
}

// setsSlices finds GPUs on which several slices are at work, and one of them has the time slice that the driver gives everybody.
func (d *doctor) setsSlices(kept []keptSlice) {
	working, unset := map[device.NVMLIndex]int{}, map[device.NVMLIndex]bool{}
	for _, s := range kept {
		if c := s.counted; c != nil && c.Percent != nil && *c.Percent > 0 {
			working[s.index]++
			unset[s.index] = unset[s.index] || c.SliceUs == 0
		}
	}
	for _, index := range slices.Sorted(maps.Keys(working)) {
		if working[index] > 1 && unset[index] {
			d.Bad("vgpud", "its log has the answer of the kernel or the driver",
				"it sets no time slices on GPU %d, on which %d slices are at work", index, working[index])
		}
	}
}

// seesAll finds slices of which a process uses the GPU whose channel groups vgpud does not know. Who has the library is not stopped for that: his page
// may be cut, or the driver's calls not seen.
func (d *doctor) seesAll(kept []keptSlice) {
	var unseen []string
	for _, s := range kept {
		if c := s.counted; c != nil && c.Unnamed && !(s.here && c.Idle) { // at those it does not look, which is said
			unseen = append(unseen, fmt.Sprintf("job %d on GPU %d", s.job, s.index))
		}
	}
	if len(unseen) > 0 {
		d.Warn("vgpud", "its log has the process; SECURITY.md, \"Shares kept by vgpud\", says how that comes about",
			"it does not see a process that uses the GPU, which has no weight and is not counted: %s", strings.Join(unseen, ", "))
	}
}
