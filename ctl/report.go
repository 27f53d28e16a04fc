// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/jobreport"
)

func reportCommand(o *options) *cobra.Command {
	var asJSON, plot bool
	var svg string
	command := &cobra.Command{
		Use:   "report JOB",
		Short: "Tell what a job made of its slices, and what to ask for the next time",
		Long: `Tell what a job made of its slices: memory and GPU time against what was granted, peaks and when
they were, and allocations that were refused; and in notes what follows from that for the next time.

The report of a running job is shown on its node, to its user and to root. The report of a job that has
ended comes from the accounting database, on any node with sacct, as far as sacct shows the job to the
caller: each run and each node that has reported. Root on the node sees its usage records as well, whose time
lines are finer than those in the database.

JOB is a job id: 123, 123_4 for a task of an array, 123+1 for a component of a heterogeneous job.
Exit codes: 0 shown, 1 nothing is known of the job or it is another user's, 2 wrong usage, 78 config.yaml
is wrong.`,
		Example: "  vgpuctl report 123\n  vgpuctl report 123 --plot\n  vgpuctl report 123 --svg job123.svg\n" +
			"  srun --jobid=123 --overlap vgpuctl report 123   # of a running job, on its node",
		Args: oneJob,
		RunE: func(command *cobra.Command, args []string) error {
			cfg, err := o.held()
			if err != nil {
				return err
			}
			report, err := reportOf(command.Context(), cfg, args[0])
			if err != nil {
				return fmt.Errorf("report job %s: %w", args[0], err)
			}
			now, out := time.Now(), command.OutOrStdout()
			report.Complete(now, time.Local)
			if svg != "" {
				if err := writePicture(command.Context(), out, cfg, svg, report); err != nil || svg == "-" {
					return err
				}
			}
			if asJSON {
				return printJSON(out, report)
			}
			report.Text(out, jobreport.Look{Now: now, Loc: time.Local, Colour: bool(painter(out)), Columns: columnsOf(out), Strips: plot})
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&plot, "plot", false, "draw memory and share over time")
	command.Flags().StringVar(&svg, "svg", "", "draw the same as a picture into `FILE`; - is standard output, and nothing else is printed")
	_ = command.MarkFlagFilename("svg", "svg") // the flag is there
	return command
}

// drawer draws reports.
const drawer = "vgpu-draw"

// writePicture replaces a file whole, or not at all; a link of its name is not followed.
func writePicture(ctx context.Context, out io.Writer, cfg config.Config, path string, report jobreport.Report) error {
	svg, err := draw(ctx, cfg, report)
	if err != nil {
		return fmt.Errorf("--svg=%s: %w", path, err)
	}
	if path == "-" {
		_, err := out.Write(svg)
		return err
	}
	if err := renameio.WriteFile(path, svg, 0o644); err != nil {
		return fmt.Errorf("--svg=%s: %w", path, err)
	}
	return nil
}

func draw(ctx context.Context, cfg config.Config, report jobreport.Report) ([]byte, error) {
	program, err := installed.Find(drawer)
	if err != nil {
		program = filepath.Join(filepath.Dir(cfg.Library), drawer)
	}
	told, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	var svg, complaint bytes.Buffer
	command := exec.CommandContext(ctx, program)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(told), &svg, &complaint
	if err := command.Run(); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s: install it in %s, or give what --json prints to one elsewhere", drawer, filepath.Dir(program))
	} else if err != nil {
		if text := strings.TrimSpace(complaint.String()); text != "" {
			return nil, errors.New(text)
		}
		return nil, err
	}
	return svg.Bytes(), nil
}
