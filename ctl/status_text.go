// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func printStatus(to io.Writer, status nodeStatus) error {
	p, out := painter(to), bufio.NewWriter(to) // a table writes each of its cells
	fmt.Fprintf(out, "%s: %s, %s\n", p.bold(status.Node), plural(len(status.GPUs), "GPU"), plural(len(status.Slices), "slice"))
	if status.Problem != "" {
		fmt.Fprintln(out, p.bad(status.Problem))
	}
	if len(status.GPUs) > 0 {
		fmt.Fprintln(out)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "GPU\tTYPE\tUUID\tMEM MiB\tGRANTED\tFREE\tCORES\tSLICES\tSHARES\tSTATE")
		for _, g := range status.GPUs {
			word := p.good(g.State)
			if g.State != "ok" && g.State != "exclusive" && g.State != stateSlurms {
				word = p.bad(g.State)
			}
			if g.Lost != "" {
				word += ": " + g.Lost
			}
			word = status.sharesText(p, g) + "\t" + word
			fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%d\t%d\t%d%%\t%d/%d\t%s\n", g.Index, g.Type, g.UUID, g.MemMiB, g.GrantedMiB, g.FreeMiB, g.GrantedPercent, g.Slices, g.MaxSlices, word)
		}
		table.Flush()
	}
	if len(status.Slices) > 0 {
		fmt.Fprintln(out)
		writeSlices(out, p, status)
	}
	if slices.ContainsFunc(status.Slices, func(s sliceStatus) bool { return s.Counted != nil }) {
		fmt.Fprintln(out)
		writeCounted(out, p, status)
	}
	if len(status.Waiting) > 0 {
		fmt.Fprintln(out)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "JOB\tUSER\tWAITS\tFOR ROOM")
		for _, w := range status.Waiting {
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", w.Job, w.User, age(time.Duration(w.AgeSeconds)*time.Second), w.Reason)
		}
		table.Flush()
	}
	for i, note := range driverNotes(status) {
		if i == 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, note)
	}
	return out.Flush()
}

func writeSlices(out io.Writer, p paint, status nodeStatus) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tUSER\tGPU\tMEM MiB\tCORES\tUSED\tDRIVER\tDIFF\tPEAK\tGPU S\tSHARE\tAGE\tREFUSED")
	for _, s := range status.Slices {
		refused := known(s.Refusals)
		if s.Refusals != nil && *s.Refusals > 0 {
			refused = p.bad(refused)
		}
		spent, share := s.cells()
		fmt.Fprintf(table, "%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Job, s.User, s.Index, s.MemMiB, cores(s.SMPercent),
			known(s.UsedMiB), known(s.DriverMiB), difference(s.DifferenceMiB), known(s.PeakMiB), spent, share,
			age(time.Duration(s.AgeSeconds)*time.Second), refused)
	}
	table.Flush()
}

// slicesText is the table of slices without colours.
func slicesText(status nodeStatus) string {
	var text strings.Builder
	writeSlices(&text, false, status)
	return text.String()
}
