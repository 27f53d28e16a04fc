// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// nonsense is what a time that nobody has filled in looks like, or a format without its value.
var nonsense = regexp.MustCompile(`10675[12]|0001-01-01|1969-|1970-|[0-9]{5}-[0-9][0-9]:|NaN|Inf|%!|<nil>`)

// Whatever is missing of a job, explain tells no nonsense of it.
func TestNothingMissingMakesAnExplanationNonsense(t *testing.T) {
	now := time.Now()
	for _, source := range []string{sourceGranted, sourceEnded, sourceAccounting, sourceWaiting, ""} {
		for bits := range 1 << 7 {
			has := func(bit int) bool { return bits&(1<<bit) != 0 }
			e := explanation{Job: 7, Source: source, Whole: has(6)}
			if has(0) {
				e.Since = now.Add(-time.Hour)
			}
			if has(1) {
				e.Until = now
			}
			if has(2) {
				text := "mem=3000"
				e.Request, e.Entitlement = &text, &request.Entitlement{Slices: 1}
			}
			if has(3) {
				e.Refusal, e.Waits, e.Report = "no room", "Resources", "written"
			}
			if has(4) {
				e.Slices = []explainedSlice{{Device: "GPU-a"}, {Device: "GPU-b", Figures: usage.Figures{StepFigures: usage.StepFigures{PeakMiB: new(int64(5))}}, Earlier: []device.Limit{{UntilUnixS: now.Unix()}}}}
				e.Steps = []usage.Step{{Step: "batch", Devices: []usage.StepFigures{{}}}}
			}
			if has(5) {
				e.Earlier = []explanation{{Slices: []explainedSlice{{Device: "GPU-a"}}}, {Refusal: "no room"}}
			}
			var out strings.Builder
			printExplanation(&out, e, now)
			if found := nonsense.FindString(out.String()); found != "" {
				t.Fatalf("%s %07b: %q in\n%s", source, bits, found, out.String())
			}
		}
	}
}
