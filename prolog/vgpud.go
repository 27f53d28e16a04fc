// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// vgpudWait is what a job waits for vgpud at most: nobody's job fails, or starts late, because of it.
	vgpudWait = 50 * time.Millisecond
	vgpudLook = 500 * time.Microsecond
)

// beginVgpud sees to it that vgpud is there by the time that the job has its slices, as far as that can be had without waiting.
func (p *prolog) beginVgpud() {
	runs, err := trusted.IsLocked(p.cfg.Run().VgpudLock())
	if err == nil && runs {
		return
	}
	if err := installed.StartVgpud(p.opts.configPath, p.isUnits()); err != nil {
		p.log.Error("vgpud is not there, and cannot be started", "reason", err)
	}
}

// isUnits says that the unit of systemd, which knows neither a configuration of another name nor slurmd's name for the node, keeps this run directory.
func (p *prolog) isUnits() bool {
	units := config.LoadHeld(config.DefaultPath).Config.ForNode("")
	return p.opts.configPath == config.DefaultPath && units.RunDir == p.cfg.RunDir
}

// awaitVgpud waits until vgpud has seen the job's slices. Whether it has changes nothing about them.
func (p *prolog) awaitVgpud() {
	dir := p.cfg.Run()
	if !p.keptByVgpud() {
		return
	}
	for until := time.Now().Add(vgpudWait); ; time.Sleep(vgpudLook) {
		if seen, err := ledger.ReadTime(dir.Time(p.job.id), p.job.id); err == nil && len(seen) > 0 && seen[0].LookedNs != 0 {
			return
		}
		if time.Now().After(until) {
			break
		}
	}
	runs, err := trusted.IsLocked(dir.VgpudLock())
	switch {
	case err != nil:
		p.log.Warn("the job's share of GPU time may not be kept yet", "reason", err)
	case runs:
		p.log.Warn("the job's share of GPU time is not kept yet: vgpud has not seen the slices. If it never does, slurmd or vgpud has mounts of its own: run vgpu-gres check")
	default:
		p.log.Warn("the job's share of GPU time is not kept yet: vgpud does not run yet")
	}
}

// keptByVgpud says so of the first GPU that the job has a slice of.
func (p *prolog) keptByVgpud() bool {
	g, err := grant.Read(p.cfg.Run().Grant(p.job.id))
	return err == nil && len(g.Slices) > 0 && !slices.Contains(p.store.Refused(), g.Slices[0].Device)
}
