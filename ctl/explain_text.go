// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/jobreport"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// printExplanation tells the job's way in the order in which it went.
func printExplanation(out io.Writer, e explanation, now time.Time) {
	p := painter(out)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s  %s\n", p.bold(fmt.Sprintf("%-11s", name)), fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(out, headText(e, now))
	if e.Whole && e.Refusal == "" {
		printWhole(row, e)
		return
	}
	if e.Array != "" {
		row("array", "%s", e.Array)
	}
	if e.Request != nil {
		row("request", "%s", requestText(*e.Request))
	}
	if e.Entitlement != nil {
		row("entitlement", "vgpu:%d,gpumem:%d,gpucores:%d  (what Slurm allocated here: the job's total)", e.Entitlement.Slices, e.Entitlement.MemMiB, e.Entitlement.SMPercent)
	}
	if e.Waits != "" {
		row("waits", "%s", p.bad(e.Waits))
	}
	if e.Refusal != "" {
		row("refused", "%s", p.bad(e.Refusal))
	}
	for i, s := range e.Slices {
		where := s.Device
		if e.Source == sourceAccounting {
			where = s.Node + " " + s.Device
		}
		row("grant", "%d MiB of %s", s.MemMiB, where)
		row("limit", "%s", limitText(e, s))
		if s.WithoutEffect != "" {
			row("priority", "%s", p.bad(s.Priority.String()+" has no effect now: "+s.WithoutEffect))
		}
		row("usage", "%s", usageText(p, s))
		if i == 0 || s.Node != e.Slices[i-1].Node {
			if words := s.Caught.Words(); words != "" {
				row("vgpud", "%s", p.bad(words))
			}
		}
	}
	if e.OwnersWord {
		row("source", "%s", jobreport.OwnersWord)
	}
	for _, step := range e.Steps {
		row("step "+step.Step, "%s", stepText(step))
	}
	if e.Report != "" {
		row("report", "%s", e.Report)
	}
	for _, run := range e.Earlier {
		row("run "+strconv.Itoa(run.Restart+1), "%s", runText(run))
	}
}

// printWhole tells of a job that no slice limits.
func printWhole(row func(name, format string, args ...any), e explanation) {
	if len(e.Slices) == 0 {
		row("grant", "none: the GPUs on which slices are placed are masked")
		return
	}
	row("entitlement", "gpu:%d  (what Slurm allocated here)", len(e.Slices))
	for _, s := range e.Slices {
		row("grant", "%s, whole", s.Device)
	}
	row("limit", "none; other GPUs are masked, and use is not counted")
}

// headText says whose job it is, where it runs or ran, and for how long.
func headText(e explanation, now time.Time) string {
	head := fmt.Sprintf("job %d", e.Job)
	if e.Restart > 0 {
		head += fmt.Sprintf(", run %d", e.Restart+1)
	}
	if e.User != "" {
		head += " of " + e.User
	}
	if e.Node != "" {
		head += " on " + e.Node
	}
	switch {
	case e.Source == sourceAccounting:
		head += ", as the accounting database tells (" + strings.ToLower(e.State) + ")"
	case e.Source == sourceEnded:
		head += ", " + endText(e)
	case e.Source == sourceWaiting:
		head += ", in the queue"
	case e.Refusal == "" && !e.Since.IsZero():
		head += ", since " + age(now.Sub(e.Since))
	}
	return head
}

// endText says when a run ended, and how long it was, as far as that is known.
func endText(e explanation) string {
	if e.Until.IsZero() {
		return "ended"
	}
	text := "ended " + e.Until.Local().Format(time.DateTime)
	if !e.Since.IsZero() {
		text += " after " + age(e.Until.Sub(e.Since))
	}
	return text
}

// stepText is what a step held at most on each device.
func stepText(step usage.Step) string {
	var peaks []string
	for _, d := range step.Devices {
		text := fmt.Sprintf("%d MiB at most", d.Peak())
		if n := d.Refused(); n > 0 {
			text += ", " + plural(int(n), "allocation") + " refused"
		}
		peaks = append(peaks, text)
	}
	return strings.Join(peaks, "; ")
}

// runText is a run before the one that is told about, in a line.
func runText(e explanation) string {
	var words []string
	if e.Refusal != "" {
		words = append(words, "refused: "+e.Refusal)
	}
	for _, s := range e.Slices {
		words = append(words, fmt.Sprintf("%d MiB of %s, %s used at most", s.MemMiB, s.Device, known(s.PeakMiB)))
	}
	return strings.Join(append(append([]string{endText(e)}, words...), "report: "+e.Report), "; ")
}

// requestText is a request as one would type it.
func requestText(canonical string) string {
	r, err := request.Decode(canonical)
	if err != nil {
		return slurm.Printable(canonical)
	}
	if r.IsZero() {
		return "by --gres alone"
	}
	return strings.Join(r.AsTyped(), " ")
}

func limitText(e explanation, s explainedSlice) string {
	text := fmt.Sprintf("%d MiB, ", s.MemMiB)
	switch {
	case s.SMPercent == 0:
		text += "no cap on GPU time"
	case s.SMPercent == 100:
		text += "the GPU to itself"
	case e.Policy == request.PolicyElastic:
		text += fmt.Sprintf("no cap on GPU time: %d%% of it when all others are busy, more when they are not (elastic)", s.SMPercent)
	default:
		text += fmt.Sprintf("%d%% of the GPU's time", s.SMPercent)
	}
	if s.Priority != device.PriorityNormal {
		text += "; priority " + s.Priority.String()
	}
	switch e.Isolation {
	case config.IsolationStrict:
		text += "; strict isolation"
	case config.IsolationWall:
		text += "; strict isolation, and the driver's own limit"
	case config.IsolationPreload:
		text += "; isolation by LD_PRELOAD only"
	}
	for _, was := range s.Earlier {
		text += fmt.Sprintf("; until %s: %d MiB, %s", time.Unix(was.UntilUnixS, 0).Format(time.DateTime), was.MemMiB, cores(was.SMPercent))
	}
	if e.FailOpen {
		text += "; unlimited if the limit cannot be kept"
	}
	return text
}

func usageText(p paint, s explainedSlice) string {
	if s.PeakMiB == nil {
		return "- (readable by the job's user and root)"
	}
	text := fmt.Sprintf("%d MiB at most", *s.PeakMiB)
	if s.UsedMiB != nil {
		text = fmt.Sprintf("%d MiB now, %s", *s.UsedMiB, text)
	}
	if spent := timeText(s.Time); spent != "" {
		text += ", " + spent
	}
	if s.IdleSeconds > 0 {
		text += ", " + p.bad("no GPU time for "+age(time.Duration(s.IdleSeconds)*time.Second))
	}
	if s.Refusals != nil && *s.Refusals > 0 {
		text += ", " + p.bad(plural(int(min(*s.Refusals, 1<<30)), "allocation")+" refused by the limit")
	}
	return text
}
