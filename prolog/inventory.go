// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// discoverTime is longer than NVML needs on a node of 16 GPUs without persistence mode.
	discoverTime = 30 * time.Second
	// discoverWait is for the others of many prologs that start together after a reboot.
	discoverWait = 45 * time.Second
)

// inventory reads the node's GPUs. The first prolog after a reboot has them discovered; NVML itself
// never runs in here, because it is slow and can hang.
func (p *prolog) inventory(ctx context.Context) (device.Inventory, error) {
	inv, err := p.readInventory()
	if err == nil {
		return inv, nil
	}
	p.log.Info("the node's GPUs are discovered", "reason", err)
	ctx, cancel := context.WithTimeout(ctx, discoverWait)
	defer cancel()
	held, err := trusted.Lock(ctx, p.cfg.Run().DriverLock())
	if err != nil {
		return device.Inventory{}, err
	}
	defer held.Close()
	if inv, err := p.readInventory(); err == nil { // somebody else was quicker
		return inv, nil
	}
	failed := p.discover(ctx)
	if inv, err := p.readInventory(); err == nil || failed == nil { // it is written also where there is no wall
		return inv, err
	}
	return device.Inventory{}, failed
}

// takeOut takes a node out of Slurm's hands that would fail job after job, and look idle, and refuses the job.
func (p *prolog) takeOut(ctx context.Context, g grant.Grant, cause drained.Cause, reason error, told *slurm.Job) error {
	done, err := drained.Node(ctx, p.controller, p.cfg.Spool(), p.node, cause, reason.Error())
	if done {
		p.log.Error("the node is drained", "cause", cause, "reason", reason)
	}
	if err != nil {
		p.log.Error("the node takes jobs that it fails", "reason", err)
	}
	return p.refuse(ctx, g, strings.TrimPrefix(string(cause), "vgpu: ")+": "+reason.Error(), told)
}

// isWithoutGPUs says that there is nothing on this node that a configuration could close.
func (p *prolog) isWithoutGPUs() bool {
	inv, err := inventory.Read(p.cfg.Run().Inventory())
	return err == nil && inv.BootID == p.store.BootID && len(inv.GPUs) == 0
}

func (p *prolog) readInventory() (device.Inventory, error) {
	inv, err := inventory.Read(p.cfg.Run().Inventory())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return device.Inventory{}, fmt.Errorf("there is no %s", p.cfg.Run().Inventory())
	case err != nil:
		return device.Inventory{}, err
	case inv.BootID != p.store.BootID:
		return device.Inventory{}, fmt.Errorf("%s is of another boot", p.cfg.Run().Inventory())
	}
	return inventory.Leave(inv, p.cfg.SlurmGPUs), nil
}

// discover runs `vgpu-gres inventory --write`.
func (p *prolog) discover(ctx context.Context) error {
	tool := p.opts.gresTool
	if tool == "" {
		found, err := installed.Find("vgpu-gres")
		if err != nil {
			return err
		}
		tool = found
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "inventory", "--write", "--config", p.opts.configPath)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "SLURMD_NODENAME=" + p.node}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("vgpu-gres inventory did not end within %s", discoverTime)
	}
	if err != nil {
		return fmt.Errorf("vgpu-gres inventory: %w: %s", err, firstLine(said))
	}
	return nil
}

// firstLine keeps a reason short: users read it.
func firstLine(said []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return line
}
