// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Look is how a report is shown.
type Look struct {
	Now     time.Time
	Loc     *time.Location
	Colour  bool
	Columns int  // of the terminal
	Strips  bool // draw memory and share over time
}

const (
	barCells = 30
	maxBars  = 8 // slices of a run that get a bar for each figure; more of them get a line each
)

func (l Look) paint(code, text string) string {
	if !l.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (l Look) bold(text string) string { return l.paint("1", text) }
func (l Look) bad(text string) string  { return l.paint("31", text) }

// Text prints a report that is Complete.
func (r Report) Text(out io.Writer, look Look) {
	if r.Array != "" {
		fmt.Fprintln(out, r.Array)
	}
	for i, run := range r.Runs {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, look.bold(r.head(i, look)))
		if run.Summary != "" {
			fmt.Fprintln(out, run.Summary)
		}
		if len(run.Slices) > maxBars {
			run.lines(out, look)
		} else {
			for _, s := range run.Slices {
				run.bars(out, s, look)
			}
		}
		if look.Strips {
			for _, s := range run.Slices {
				run.strips(out, s, look)
			}
		}
		if run.OwnersWord {
			fmt.Fprintf(out, "from %s\n", OwnersWord)
		}
		if run.Missing != "" {
			fmt.Fprintln(out, run.Missing)
		}
		if len(run.Notes) > 0 {
			fmt.Fprintln(out, look.bold("notes"))
		}
		for _, note := range run.Notes {
			fmt.Fprintf(out, "  * %s\n", note.Text)
		}
	}
}

// head says whose job it is, where the run is or was, and for how long.
func (r Report) head(i int, look Look) string {
	run := r.Runs[i]
	head := "job " + r.JobID
	if r.User != "" {
		head += " of " + r.User
	}
	if run.Account != "" {
		head += " (account " + run.Account + ")"
	}
	if len(r.Runs) > 1 {
		head += fmt.Sprintf(", run %d of %d", i+1, len(r.Runs))
	}
	switch nodes := run.Nodes(); {
	case len(nodes) > 4:
		head += fmt.Sprintf(" on %d nodes", len(nodes))
	case len(nodes) > 0:
		head += " on " + strings.Join(nodes, ", ")
	}
	state := strings.ReplaceAll(strings.ToLower(run.State), "_", " ")
	switch {
	case run.Queued():
		return head + ": in the queue" + since(run.Submitted, look)
	case run.Start.IsZero():
		return head + fmt.Sprintf(": %s at %s before it began", state, clock(run.End, look.Now, look.Loc))
	case run.Running():
		head += ": running for " + Length(run.Wall(look.Now)) + run.ofLimit()
	default:
		head += fmt.Sprintf(": %s at %s after %s", state, clock(run.End, look.Now, look.Loc), Length(run.Wall(look.Now))) + run.ofLimit() + run.exitText()
	}
	if queued := run.Start.Sub(run.Submitted); !run.Submitted.IsZero() && queued >= time.Second {
		head += ", " + Length(queued) + " in the queue before"
	}
	return head
}

// since is when something began, where that is known.
func since(at time.Time, look Look) string {
	if at.IsZero() {
		return ""
	}
	return " since " + clock(at, look.Now, look.Loc)
}

// Nodes are those that gave it a slice, or refused it.
func (r Run) Nodes() []string {
	var names []string
	for _, s := range r.Slices {
		names = append(names, s.Node)
	}
	for node := range r.Refusals {
		names = append(names, node)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// bar is part of whole in cells, with at least one for what is not nothing.
func bar(part, whole float64) string {
	filled := 0
	if whole > 0 && part > 0 {
		filled = max(1, min(barCells, int(barCells*part/whole+0.5)))
	}
	return strings.Repeat("█", filled) + strings.Repeat("░", barCells-filled)
}

func (s Slice) name(policy string) string {
	text := fmt.Sprintf("%s %s: %d MiB", s.Node, s.Device, s.MemMiB)
	switch {
	case s.Whole:
		return fmt.Sprintf("%s %s: the whole GPU", s.Node, s.Device)
	case s.SMPercent == 0:
		text += ", no cap on GPU time"
	case s.SMPercent == 100:
		text += ", the GPU to itself"
	case policy == string(request.PolicyElastic):
		text += fmt.Sprintf(", %d %% of the GPU's time when all others are busy, more when they are not (elastic)", s.SMPercent)
	default:
		text += fmt.Sprintf(", %d %% of the GPU's time", s.SMPercent)
	}
	if s.Priority != device.PriorityNormal {
		text += ", priority " + s.Priority.String()
	}
	return text
}

func (r Run) bars(out io.Writer, s Slice, look Look) {
	fmt.Fprintln(out, s.name(r.Policy))
	if s.Whole {
		fmt.Fprintln(out, "  its use is not counted")
		return
	}
	row := func(name string, part, whole float64, words string) {
		percent := unknown
		if whole > 0 {
			percent = fmt.Sprintf("%.0f", 100*part/whole)
		}
		fmt.Fprintf(out, "  %-7s  %s %4s %%  %s\n", name, bar(part, whole), percent, words)
	}
	row("memory", float64(s.Peak()), float64(s.MostMiB()), s.memoryWords(r.end(look.Now), look.Loc))
	switch words := s.timeWords(); {
	case s.SharePercent == nil:
		fmt.Fprintf(out, "  %-7s  %s\n", "time", words)
	case s.Capped():
		row("time", *s.SharePercent, float64(s.MostPercent()), words)
	default:
		row("time", *s.SharePercent, 100, words)
	}
	if s.Refused() > 0 {
		fmt.Fprintf(out, "  %-7s  %s\n", "refused", look.bad(plural(s.Refused(), "allocation")+" at the limit"))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func plural(n uint64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func (s Slice) memoryWords(near time.Time, loc *time.Location) string {
	text := fmt.Sprintf("%d of %d MiB at most", s.Peak(), s.MostMiB())
	if !s.PeakAt.IsZero() {
		text += ", about " + clock(s.PeakAt, near, loc)
	}
	if s.UsedMiB != nil {
		text += fmt.Sprintf("; %d now", *s.UsedMiB)
	}
	return text
}

func (s Slice) timeWords() string {
	text := "not known: vgpud has not looked at it"
	switch {
	case s.GPUSeconds == nil || s.SharePercent == nil:
		return text + s.unknownWords()
	case s.Capped():
		text = fmt.Sprintf("%.1f of %d %% of the GPU's time on average, %.1f s", *s.SharePercent, s.MostPercent(), *s.GPUSeconds)
	default:
		text = fmt.Sprintf("%.1f s of GPU time, %.1f %% of the GPU on average", *s.GPUSeconds, *s.SharePercent)
	}
	if s.MostSharePercent != nil {
		text += fmt.Sprintf("; %.1f %% at most", *s.MostSharePercent)
	}
	if s.Inexact {
		text += "; in part split of what several slices used together"
	}
	return text + s.unknownWords()
}

func (s Slice) unknownWords() string {
	if s.UnknownSeconds < 0.05 { // as it is written
		return ""
	}
	return fmt.Sprintf("; %.1f s of the time not counted", s.UnknownSeconds)
}

// lines are a table of many slices.
func (r Run) lines(out io.Writer, look Look) {
	rows := [][]string{{"NODE", "GPU", "MEM MiB", "PEAK", "CORES", "SHARE", "REFUSED"}}
	for _, s := range r.Slices {
		capText, share := "no cap", "-"
		if s.SMPercent > 0 {
			capText = fmt.Sprintf("%d%%", s.SMPercent)
		}
		if s.SharePercent != nil {
			share = fmt.Sprintf("%.1f%%", *s.SharePercent)
		}
		rows = append(rows, []string{s.Node, string(s.Device), fmt.Sprint(s.MemMiB), fmt.Sprint(s.Peak()), capText, share, fmt.Sprint(s.Refused())})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", widths[i], cell)
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}
