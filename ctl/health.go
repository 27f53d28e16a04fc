// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const healthText = `Ask NVML whether the GPUs of this node can be used, and write into the inventory which of them cannot: one
that has fallen off the bus, does not answer, or of which the driver wants a reset or a reboot, as after an
uncorrectable error of its memory. No new slice is placed there; slices on it and on other GPUs stay as they are.

Where Slurm itself picks GPUs (shards), and where no GPU is left that takes slices, the node is drained. When
the GPU can be used again, the next look gives both back. vgpud runs it every two minutes while slices are there,
after each job, and within five minutes on a node that drained itself.

Exit codes: 0 looked; 1 that was not possible; 2 wrong usage, 78 config.yaml is wrong.`

func healthCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "health",
		Short:   "Look for GPUs that have failed, and place nothing there (root only)",
		Long:    healthText,
		Example: "  vgpuctl health\n  vgpuctl status    # shows what it has found",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, log, closer, err := o.asRoot("health", "only root may take a GPU out of service")
			defer closer.Close()
			if err != nil {
				return err
			}
			return lookAtGPUs(command.Context(), cfg, o.node, log, command.OutOrStdout())
		},
	}
}

// lookAtGPUs has the inventory say what NVML says now, and takes the node out of Slurm's hands while it must be.
func lookAtGPUs(ctx context.Context, cfg config.Config, node string, log hclog.Logger, out io.Writer) error {
	inv, changed, err := renewInventory(ctx, cfg)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(out, "there is no inventory of this boot: the first vgpu-prolog, or `vgpu-gres inventory --write`, makes it")
		return nil
	}
	why := whyDrained(cfg, inv)
	if errors.Is(err, discover.ErrUnavailable) {
		why = err.Error()
	} else if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	for _, gpu := range changed {
		if gpu.Lost != "" {
			log.Error("a GPU has failed, and takes no new slices", "device", gpu.UUID, "nvml_index", gpu.Index, "reason", gpu.Lost)
		} else {
			log.Warn("a GPU can be used again", "device", gpu.UUID, "nvml_index", gpu.Index)
		}
	}
	printHealth(out, inv)
	controller := slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: time.Minute}
	if why == "" {
		resumed, resumeErr := drained.Resume(ctx, controller, cfg.Spool(), node, drained.GPUFailed)
		if resumed != "" {
			fmt.Fprintf(out, "%s is resumed, which was drained: %s\n", node, resumed)
		}
		return resumeErr
	}
	done, drainErr := drained.Node(ctx, controller, cfg.Spool(), node, drained.GPUFailed, why)
	if done {
		log.Error("the node is drained", "cause", drained.GPUFailed, "reason", why)
		fmt.Fprintf(out, "%s is drained: %s\n", node, why)
	}
	return errors.Join(err, drainErr)
}

// renewInventory holds the inventory against NVML. One that is missing, or of another boot, is the prolog's to make: fs.ErrNotExist.
func renewInventory(ctx context.Context, cfg config.Config) (inv device.Inventory, changed []device.GPU, err error) {
	if inv, err = inventoryOfThisBoot(cfg); err != nil {
		return inv, nil, err
	}
	seen, err := audit.GPUs(cfg) // without the lock: it may hang for good in a driver whose GPU is gone
	if err != nil {
		return inv, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	held, err := trusted.Lock(ctx, cfg.Run().DriverLock())
	if err != nil {
		return inv, nil, err
	}
	defer held.Close()
	if inv, err = inventoryOfThisBoot(cfg); err != nil {
		return inv, nil, err
	}
	inv, changed = inventory.Renew(inventory.Leave(inv, cfg.SlurmGPUs), inventory.Leave(seen, cfg.SlurmGPUs), time.Now())
	if len(changed) > 0 {
		err = inventory.Write(cfg.Run().Inventory(), inv)
	}
	return inv, changed, err
}

func inventoryOfThisBoot(cfg config.Config) (device.Inventory, error) {
	boot, err := inventory.BootID()
	if err != nil {
		return device.Inventory{}, err
	}
	inv, err := inventory.Read(cfg.Run().Inventory())
	if err == nil && inv.BootID != boot {
		err = fmt.Errorf("the inventory is of an earlier boot: %w", fs.ErrNotExist)
	}
	return inv, err
}

// whyDrained is why the node must take no jobs: a GPU has failed that Slurm goes on giving out, or the last one; "" if it may.
func whyDrained(cfg config.Config, inv device.Inventory) string {
	var failed []string
	usable := 0
	for _, gpu := range inv.GPUs {
		switch {
		case gpu.Lost == "":
			usable++
		case gpu.FailedUnixS != 0 && gpu.Lost != inventory.SlurmsOwn:
			failed = append(failed, fmt.Sprintf("GPU %d: %s", gpu.Index, gpu.Lost))
		}
	}
	if usable > 0 && !cfg.Shards {
		return ""
	}
	return strings.Join(failed, "; ")
}

func printHealth(out io.Writer, inv device.Inventory) {
	for _, gpu := range inv.GPUs {
		switch {
		case gpu.Lost == "" || gpu.Lost == inventory.SlurmsOwn:
			fmt.Fprintf(out, "GPU %d (%s): ok\n", gpu.Index, gpu.UUID)
		case gpu.FailedUnixS != 0:
			fmt.Fprintf(out, "GPU %d (%s): failed at %s: %s\n", gpu.Index, gpu.UUID, time.Unix(gpu.FailedUnixS, 0).Format(time.DateTime), gpu.Lost)
		default:
			fmt.Fprintf(out, "GPU %d (%s): not usable since boot: %s\n", gpu.Index, gpu.UUID, gpu.Lost)
		}
	}
}
