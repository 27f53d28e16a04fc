// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// whereabouts is what the controller knows of a job of which this node knows nothing.
type whereabouts struct {
	slurm.Standing
	room  string // what it waits for, where that is room on a GPU
	known bool
	heard bool // the controller has answered
	gpus  bool // it asked for whole GPUs
	none  bool // it asked for neither these nor slices, as far as that is known
}

// whereaboutsOf asks the controller. One that does not answer knows nothing: there are other sources.
func whereaboutsOf(ctx context.Context, cfg config.Config, id string, job uint32) (w whereabouts) {
	controller := slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue}
	standings, err := controller.Standings(ctx, []uint32{job})
	if err == nil {
		w.Standing, w.known, w.heard = standings[job], standings[job].State != "", true
	}
	if room, err := controller.Waits(ctx, id); err == nil {
		w.room = room
	}
	if asked, gpus, err := controller.Asked(ctx, job); err == nil {
		w.gpus, w.none = gpus, asked.IsZero() && !gpus
	}
	return w
}

// noJob is about one that the accounting database does not have either.
func (w whereabouts) noJob() error {
	if w.heard && !w.known {
		return errors.New("neither slurmctld nor the accounting database has such a job, or they do not show it to you")
	}
	return errors.New("the accounting database has no such job, or does not show it to you, and slurmctld does not say more of it")
}

// queued says that the job is in the queue.
func (w whereabouts) queued() bool { return w.known && (w.Waits() || w.Held()) || w.room != "" }

// waits is what it waits for there.
func (w whereabouts) waits() string {
	switch {
	case !w.queued():
		return ""
	case w.room != "":
		return w.room
	case w.gpus:
		return w.ReasonText() + "; it asked for whole GPUs, whose use is not counted"
	}
	return w.ReasonText()
}

// error is why nothing can be told here; nil: that is not known. command is the one that would tell it elsewhere.
func (w whereabouts) error(command, id string) error {
	switch {
	case w.queued():
		return errors.New("it waits in the queue: " + w.waits())
	case !w.known:
		return nil
	case w.gpus && w.Runs():
		return fmt.Errorf("it runs on %s with whole GPUs, whose use is not counted", w.Nodes)
	case w.gpus:
		return errors.New("it asked for whole GPUs, whose use is not counted")
	case w.none:
		return errNoVGPU
	case w.Runs():
		return elsewhere(w.Nodes, command, id)
	case w.State == "COMPLETING":
		return fmt.Errorf("it is ending on %s, which reports when all its processes are gone", w.Nodes)
	}
	return nil
}

func elsewhere(nodes, command, id string) error {
	return fmt.Errorf("it runs on %s: ask there (srun --jobid=%s --overlap vgpuctl %s %s)", nodes, id, command, id)
}
