// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// leastSizeMiB is the least that a proposed size has, so that there is room beside a program's context.
const leastSizeMiB = 4096

// parts are the names of the proposed sizes.
var parts = []struct {
	name string
	of   int
}{{"whole", 1}, {"half", 2}, {"quarter", 4}, {"eighth", 8}, {"sixteenth", 16}}

func sizesCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "sizes", Short: "Print a set of sizes for config.yaml",
		Long: "Print names for slices of this node's GPUs: halves, quarters and so on, as far as they\nare of use there. They belong into config.yaml; " +
			"`vgpu-gres cluster.lua` then prints them for\njob_submit.lua, and users write --gres=vgpu:half:1.",
		Example: "  vgpu-gres sizes", Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			_, forNode, err := o.load()
			if err != nil {
				return err
			}
			inventory, err := known(forNode)
			if err != nil {
				return err
			}
			return printSizes(command.OutOrStdout(), forNode, inventory)
		},
	}
}

// printSizes names parts of a GPU that are large enough on the smallest, and no more of one than a GPU takes.
func printSizes(out io.Writer, cfg config.Config, inventory device.Inventory) error {
	smallest, largest := int64(0), int64(0)
	for _, gpu := range inventory.GPUs {
		if gpu.Lost != "" {
			continue
		}
		if largest = max(largest, gpu.MemMiB); smallest == 0 || gpu.MemMiB < smallest {
			smallest = gpu.MemMiB
		}
	}
	if largest == 0 {
		return errNoGPU
	}
	fmt.Fprintf(out, "# Names for slices: users write --gres=vgpu:half:1. For config.yaml, of %s.\n# Then print cluster.lua anew.\nsizes:\n", describe(inventory))
	for _, part := range parts {
		mem := request.Mem{Percent: 100 / float64(part.of)}
		if part.of > 1 && (mem.OfGPU(smallest) < leastSizeMiB || part.of > cfg.SlicesPerGPU) {
			break
		}
		line := fmt.Sprintf("%s: {mem: %s, cores: %d}", part.name, mem, 100/part.of)
		fmt.Fprintf(out, "  %-36s # %d MiB, %d on a GPU\n", line, mem.OfGPU(largest), part.of)
	}
	return nil
}

// noTypes refuses a size that is called as a type of these GPUs, which would be read in two ways.
func noTypes(cfg config.Config, inventory device.Inventory) error {
	for _, size := range cfg.NamedSizes() {
		for _, gpu := range inventory.GPUs {
			if strings.EqualFold(gpu.Type, size.Name) {
				return fmt.Errorf("config.yaml: sizes: %s is a type of this node's GPUs: take another name%w", size.Name, errConfig)
			}
		}
	}
	return nil
}

// sizesTable are the site's sizes as job_submit.lua reads them, with line ends; "" without any.
func sizesTable(cfg config.Config) string {
	var b strings.Builder
	for _, size := range cfg.NamedSizes() {
		var fields []string
		if size.Mem.Percent > 0 {
			fields = append(fields, "mem_percent = "+strconv.FormatFloat(size.Mem.Percent, 'f', -1, 64))
		} else if size.Mem.MiB > 0 {
			fields = append(fields, fmt.Sprintf("mem_mib = %d", size.Mem.MiB))
		}
		if size.SMPercent > 0 || size.Uncapped {
			fields = append(fields, fmt.Sprintf("cores = %d", size.SMPercent))
		}
		fmt.Fprintf(&b, "\t\t[%q] = { %s },\n", size.Name, strings.Join(fields, ", "))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\tsizes = {\n" + b.String() + "\t},\n"
}
