// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/devfiles"
)

// devicesReport is what `vgpuctl devices --json` prints.
type devicesReport struct {
	Node        string          `json:"node"`
	DeviceFiles string          `json:"device_files"` // as configured
	DeviceGroup string          `json:"device_group"`
	Modifies    *bool           `json:"driver_modifies_files"` // NVreg_ModifyDeviceFiles; null: there is no driver that says
	Files       []devfiles.File `json:"files"`
}

const devicesText = `Show, close or open the device files (/dev/nvidiaN) of the GPUs that slices are cut from.

Where device_files is closed in config.yaml, only root and the members of device_group may open them:
a session of ssh, a cron job or a job without a slice has no GPU. Steps that hold one get a file of their
own in its place, from a folder beside it that only root may enter.

close does that, at boot (slurm-vgpu-devices.service) and by hand; vgpu-prolog closes again what was opened.
It also mounts closed files of the same devices over them, read-only, which keeps the driver's own tools from opening them.
open gives the files to all users again, and takes these mounts away; set device_files to open first. status changes nothing, and
shows each file that is not as configured. Each command may run again: it leaves files that are right as they are.

Close the files on a node without jobs: a step that began before has no files of its own.

Exit codes: 0 all is as configured, 1 something is not, or the command failed, 2 wrong usage, 78 config.yaml
is wrong.`

func devicesCommand(o *options) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:       "devices close|open|status [--json]",
		Short:     "Close the GPUs' device files to everybody who holds no GPU, or open them",
		Long:      devicesText,
		Example:   "  vgpuctl devices status\n  vgpuctl devices close\n  vgpuctl devices status --json | jq '.files[] | select(.state == \"open\")'",
		ValidArgs: []string{"close", "open", "status"},
		Args: func(command *cobra.Command, args []string) error {
			if err := cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)(command, args); err != nil {
				return exitError{exitUsage, errors.New("devices takes one of close, open and status")}
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			cfg, err := o.held()
			if err != nil {
				return err
			}
			changed := changeDevices(cfg, args[0])
			report, err := lookAtDevices(cfg, o.node)
			if err = errors.Join(changed, err); err != nil {
				return err
			}
			out := command.OutOrStdout()
			if asJSON {
				err = printJSON(out, report)
			} else {
				printDevices(out, report)
			}
			if err == nil && len(wrongDevices(cfg, report.Files)) > 0 {
				return exitError{code: exitFailure}
			}
			return err
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func changeDevices(cfg config.Config, how string) error {
	set := cfg.DeviceSet()
	switch {
	case how == "status":
		return nil
	case os.Geteuid() != 0:
		return fmt.Errorf("devices %s: only root may change device files", how)
	case how == "open":
		return set.Reopen()
	case cfg.DeviceFiles != config.FilesClosed:
		return errors.New("devices close: device_files is open in config.yaml, so that steps would get no files of their own")
	case !cfg.ClosesFiles():
		return errors.New("devices close: isolation is preload, so that steps can get no files of their own")
	}
	if err := set.Close(); err != nil {
		return err
	}
	return set.Hold()
}

func lookAtDevices(cfg config.Config, node string) (devicesReport, error) {
	set := cfg.DeviceSet()
	files, err := set.Look()
	report := devicesReport{Node: node, DeviceFiles: cfg.DeviceFiles, DeviceGroup: cfg.DeviceGroup, Files: files}
	if modifies, known := set.DriverModifies(); known {
		report.Modifies = &modifies
	}
	return report, err
}

// wrongDevices are the paths of files that are not as configured. Where they are open, a site may have ways of its own.
func wrongDevices(cfg config.Config, files []devfiles.File) (paths []string) {
	for _, file := range files {
		left := file.State == devfiles.Closed && file.StepFile != nil && *file.StepFile
		if cfg.ClosesFiles() && file.Wrong() || !cfg.ClosesFiles() && left {
			paths = append(paths, file.Path)
		}
	}
	return paths
}

// loose are the paths of files that are closed, and that the driver's tools open again: every program of root's that starts NVML or CUDA.
func loose(files []devfiles.File) (paths []string) {
	for _, file := range files {
		if file.State == devfiles.Closed && !file.Slurms && !file.Held {
			paths = append(paths, file.Path)
		}
	}
	return paths
}

func printDevices(out io.Writer, report devicesReport) {
	fmt.Fprintf(out, "%s: device_files is %s\n", report.Node, report.DeviceFiles)
	if loose := loose(report.Files); report.DeviceFiles == config.FilesClosed && len(loose) > 0 {
		fmt.Fprintf(out, "closed, but not held by `vgpuctl devices close`, so that the driver's tools may open them again: %s\n", strings.Join(loose, ", "))
	}
	if len(report.Files) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nFILE\tMODE\tOWNER\tFOR STEPS\tSTATE")
	for _, file := range report.Files {
		mode, owner, state := "-", "-", string(file.State)
		if file.State != devfiles.Missing {
			mode, owner = file.Mode, userName(file.UID)+":"+groupName(file.GID)
		}
		if file.Slurms {
			state += ", Slurm's own"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", file.Path, mode, owner, yesNo(file.StepFile), state)
	}
	table.Flush()
}

func yesNo(is *bool) string {
	switch {
	case is == nil:
		return "-"
	case *is:
		return "yes"
	}
	return "no"
}

// groupName is the name of a group, or its number if it has none here.
func groupName(gid uint32) string {
	number := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(number); err == nil {
		return g.Name
	}
	return number
}
