// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sweep"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// slicesTime bounds the questions to the controller, one for each job on the node.
const slicesTime = 15 * time.Second

// slices holds what Slurm has allocated to jobs on this node against what they hold here.
func (d *doctor) slices(ctx context.Context) {
	const check = "slices"
	if os.Geteuid() != 0 {
		d.Warn(check, asRoot, "not checked: needs root")
		return
	}
	current, err := state.Of(d.config, d.bootID, hclog.NewNullLogger()).Read()
	if err != nil {
		return // what is wrong with the state is said there
	}
	held := make(map[uint32][]state.Slice)
	for _, s := range current.Slices {
		held[s.Job] = append(held[s.Job], s)
	}
	ctx, cancel := context.WithTimeout(ctx, slicesTime)
	defer cancel()
	client := slurm.Client{Scontrol: d.config.Slurm.Scontrol, Squeue: d.config.Slurm.Squeue, Timeout: slicesTime}
	jobs, err := client.JobsOn(ctx, d.node)
	if err != nil {
		d.Warn(check, "see that slurmctld answers", "not compared with what Slurm has allocated: %v", err)
		return
	}
	differ, changed, unknown, first, remedy := 0, 0, 0, "", ""
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		if trusted.Age(jobs[job]) < sweep.Grace {
			continue // its prolog may be at work
		}
		says, what, set, err := d.compare(ctx, client, job, held[job])
		switch {
		case err != nil:
			unknown++
		case says != "":
			differ++
			if first == "" {
				first, remedy = fmt.Sprintf("job %d %s", job, says), what
			}
		case set:
			changed++
		}
	}
	if differ > 0 {
		d.Bad(check, remedy, "%s of %d that run here differ from what Slurm has allocated: %s", plural(differ, "job"), len(jobs), first)
		return
	}
	d.OK(check, "%s here, as Slurm has allocated them%s%s", plural(len(current.Slices), "slice"),
		ifAny(changed, "; changed by `vgpuctl set`: those of "), ifAny(unknown, "; of which nothing is known: "))
}

func ifAny(jobs int, before string) string {
	if jobs == 0 {
		return ""
	}
	return before + plural(jobs, "job")
}

// compare says in what a job's slices differ from its allocation, and what to do about it. What `vgpuctl set` has
// changed is no difference: Slurm does not count it, and root wanted it so.
func (d *doctor) compare(ctx context.Context, client slurm.Client, job uint32, held []state.Slice) (says, remedy string, set bool, err error) {
	told, err := client.Job(ctx, job)
	if err != nil {
		return "", "", false, err
	}
	entitled, err := told.Entitlement(d.node)
	if err != nil {
		return "", "", false, err
	}
	g, err := grant.Read(d.config.Run().Grant(job))
	switch {
	case errors.Is(err, fs.ErrNotExist) && (entitled.IsZero() || len(held) > 0):
		return "", "", false, nil // no job of ours, or the state check says it
	case errors.Is(err, fs.ErrNotExist):
		return "has " + entitlementText(entitled) + " and holds nothing here", fmt.Sprintf("its programs find no GPU: scontrol requeue %d, or cancel it; then see the log of vgpu-prolog", job), false, nil
	case err != nil:
		return "", "", false, err
	case g.Refusal != "" || g.Whole:
		return "", "", false, nil
	case len(held) == 0:
		return "runs and is not in the state file", "vgpuctl sweep", false, nil
	case len(held) != entitled.SliceCount():
		return fmt.Sprintf("has %s and holds %s", entitlementText(entitled), plural(len(held), "slice")), fmt.Sprintf("scontrol requeue %d, or cancel it", job), false, nil
	case g.Entitlement != entitled:
		return fmt.Sprintf("has %s by now and was granted for %s", entitlementText(entitled), entitlementText(g.Entitlement)),
			fmt.Sprintf("vgpuctl set %d, with the figures of Slurm", job), false, nil
	}
	memMiB, smPercent := entitled.PerSlice()
	for _, s := range held {
		set = set || s.MemMiB > memMiB || smPercent > 0 && (s.SMPercent == 0 || s.SMPercent > smPercent)
	}
	return "", "", set, nil
}

func entitlementText(e request.Entitlement) string {
	return fmt.Sprintf("vgpu:%d,gpumem:%d,gpucores:%d", e.Slices, e.MemMiB, e.SMPercent)
}
