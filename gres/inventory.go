// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/builds"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

func inventoryCommand(o *options) *cobra.Command {
	var write, asJSON bool
	command := &cobra.Command{
		Use:   "inventory [--write] [--json]",
		Short: "List the GPUs that NVML sees; --write keeps them for vgpu-prolog",
		Long: `List the GPUs that NVML sees.

vgpu-prolog does not start NVML: it reads inventory.json in run_dir, which --write makes. Write it at
every boot before slurmd starts, and again after a GPU was exchanged, lost or reset.

With isolation: wall it also tries, as root, on a cgroup of its own, whether the driver keeps limits of
memory; where it does not, vgpu-prolog refuses jobs with slices, and the exit code is 1.

A GPU that cannot be used is listed with the reason; no job is placed on it. GPUs in MIG mode are
not supported yet.`,
		Example: `  vgpu-gres inventory
  vgpu-gres inventory --write
  vgpu-gres inventory --json | jq '.gpus[].uuid'`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, err := o.held()
			if err != nil {
				return err
			}
			inv, err := detect(cfg)
			if err != nil {
				return err
			}
			var wallErr error
			if cfg.Isolation == config.IsolationWall {
				if inv.Wall, wallErr = tryWall(cfg, inv); wallErr != nil {
					inv.Wall = wallErr.Error()
				}
			}
			if write {
				if err := os.MkdirAll(cfg.RunDir, 0o755); err != nil {
					return fmt.Errorf("write inventory: %w", err)
				}
				if err := inventory.Write(cfg.Run().Inventory(), inv); err != nil {
					return err
				}
				prepareBuilds(command.ErrOrStderr(), cfg)
				resume(command, cfg, o.node)
			}
			out := command.OutOrStdout()
			if asJSON {
				return errors.Join(printJSON(out, inv), wallErr)
			}
			printInventory(out, inv)
			if write {
				fmt.Fprintf(out, "written to %s\n", cfg.Run().Inventory())
			}
			return wallErr
		},
	}
	command.Flags().BoolVar(&write, "write", false, "write inventory.json in run_dir")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// resume gives the node back that the prolog took out of Slurm's hands, as its GPUs were not known. Where the controller cannot be
// reached, as from the unit at boot, vgpuctl sweep does so.
func resume(command *cobra.Command, cfg config.Config, node string) {
	controller := slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue}
	done, err := drained.Resume(command.Context(), controller, cfg.Spool(), node, drained.GPUsUnknown, drained.ConfigUnknown)
	switch {
	case err != nil:
		fmt.Fprintf(command.ErrOrStderr(), "vgpu-gres: %v; vgpuctl sweep tries again\n", err)
	case done != "":
		fmt.Fprintf(command.ErrOrStderr(), "%s is resumed, which was drained: %s\n", node, done)
	}
}

// detect asks NVML.
func detect(cfg config.Config) (device.Inventory, error) {
	lib, err := discover.Library(cfg.NVMLLibrary)
	if err != nil {
		return device.Inventory{}, err
	}
	inv, err := discover.Inventory(lib)
	if err != nil {
		return inv, err
	}
	return inventory.Leave(inv, cfg.SlurmGPUs), nil
}

// known is the inventory that was written in this boot, or what NVML says now.
func known(cfg config.Config) (device.Inventory, error) {
	inv, err := inventory.Read(cfg.Run().Inventory())
	boot, bootErr := inventory.BootID()
	if err == nil && bootErr == nil && inv.BootID == boot {
		return inventory.Leave(inv, cfg.SlurmGPUs), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(os.Stderr, "vgpu-gres: %v; asking NVML\n", err)
	}
	return detect(cfg)
}

func printJSON(out io.Writer, value any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

func printInventory(out io.Writer, inv device.Inventory) {
	fmt.Fprintf(out, "driver %s, CUDA %d.%d, GPUs: %d\n", inv.DriverVersion, inv.CUDAVersion/1000, inv.CUDAVersion%1000/10, len(inv.GPUs))
	if len(inv.GPUs) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INDEX\tMINOR\tUUID\tPCI BUS ID\tTYPE\tMEM MiB\tNAME\tSTATE")
	for _, gpu := range inv.GPUs {
		state := "ok"
		if gpu.Lost != "" {
			state = "not usable: " + gpu.Lost
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%d\t%s\t%s\n", gpu.Index, gpu.Minor, gpu.UUID, dash(gpu.PCIBusID), dash(gpu.Type), gpu.MemMiB, dash(gpu.Name), state)
	}
	table.Flush()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// prepareBuilds is for as early as can be: what is mounted later may not be seen where a job's mount namespace was made before. A process that may
// not mount, as the unit at boot in its sandbox, knows nothing of what the prolog can do, which mounts it as well and says what is in its way.
func prepareBuilds(say io.Writer, cfg config.Config) {
	if err := builds.Prepare(cfg.Run()); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		fmt.Fprintln(say, "vgpu-gres: upgrades will change the library of running jobs:", err)
	}
}
