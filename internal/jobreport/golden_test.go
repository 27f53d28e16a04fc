// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

	start = time.Date(2026, 11, 25, 1, 0, 0, 0, time.UTC)
	now   = start.Add(2 * time.Hour)
)

func ptr[T any](value T) *T { return &value }

// line is a time line of so many minutes, a point for each.
func line(minutes int, at func(minute int) (usedMiB, busyMs int64)) (points []timeline.Point) {
	for i := range minutes {
		used, busy := at(i)
		points = append(points, timeline.Point{AtUnixS: start.Add(time.Duration(i+1) * time.Minute).Unix(), UsedMiB: used, BusyMs: busy})
	}
	return points
}

// working is a job that fills its memory slowly, keeps its share, and is idle in the end.
func working() []timeline.Point {
	return line(120, func(i int) (int64, int64) {
		switch {
		case i < 5:
			return 0, 0
		case i < 75:
			return min(1946, int64(200+40*i)), 17900
		}
		return 1200, 0
	})
}

func used(peakMiB int64, refusals uint64, gpuSeconds *float64) usage.Figures {
	return usage.Figures{StepFigures: usage.StepFigures{PeakMiB: &peakMiB, Refusals: &refusals}, Time: usage.Time{GPUSeconds: gpuSeconds}}
}

func granted(points []timeline.Point) Slice {
	return Slice{Node: "n1", Device: "GPU-aaaa", MemMiB: 8192, SMPercent: 30, Figures: used(1946, 0, new(1253.0)), Timeline: points}
}

var goldens = map[string]Report{
	"running": {Job: 123, JobID: "123", User: "anna", Runs: []Run{{State: "RUNNING", Account: "physics", LimitS: 4 * 3600, Submitted: start.Add(-5 * time.Minute), Start: start,
		Slices: []Slice{func() Slice { s := granted(working()); s.UsedMiB = ptr(int64(1200)); return s }()}}}},
	"no-time-line": {Job: 124, JobID: "124_7", User: "anna", Runs: []Run{{State: "OUT_OF_MEMORY", ExitCode: "0:125", LimitS: 3600, Start: start, End: now.Add(-time.Hour),
		Slices: []Slice{{Node: "n1", Device: "GPU-aaaa", MemMiB: 3000, Figures: used(2998, 3, nil)}}}}},
	"requeued": {Job: 125, JobID: "125", Runs: []Run{
		{State: "REQUEUED", Start: start.Add(-48 * time.Hour), End: start.Add(-47 * time.Hour), Refusals: map[string]string{"n2": "no GPU has 3000 MiB free"}},
		{State: "COMPLETED", Start: start, End: now, Slices: []Slice{granted(working()),
			{Node: "n2", Device: "GPU-bbbb", MemMiB: 8192, SMPercent: 30}}, Missing: "1 of 3 nodes did not report (yet)"},
	}},
	"many": {Job: 126, JobID: "126", Runs: []Run{{State: "COMPLETED", Start: start, End: now, Slices: many()}}},
	"unknown": {Job: 128, JobID: "128", User: "anna", Runs: []Run{{State: "COMPLETED", Start: start, End: now, Slices: []Slice{
		func() Slice { s := granted(working()); s.UnknownSeconds = 12.4; return s }(),
		func() Slice {
			s := granted(working())
			s.SMPercent, s.Inexact = 0, true
			return s
		}()}}}},
	"whole": {Job: 127, JobID: "127", User: "anna", Runs: []Run{{State: "RUNNING", Start: start,
		Slices: []Slice{{Node: "n1", Device: "GPU-aaaa", MemMiB: 143771, Whole: true}}}}},
}

func many() (list []Slice) {
	for range 9 {
		list = append(list, granted(nil))
	}
	return list
}

func TestTexts(t *testing.T) {
	for name, report := range goldens {
		report.Complete(now, time.UTC)
		for suffix, look := range map[string]Look{"": {}, "-plot": {Strips: true, Columns: 80}} {
			if name == "many" && suffix != "" {
				continue
			}
			look.Now, look.Loc = now, time.UTC
			var got bytes.Buffer
			report.Text(&got, look)
			path := filepath.Join("testdata", name+suffix+".txt")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (go test -update writes it anew):\n%s", path, diff)
			}
			if look.Colour = true; suffix != "" {
				got.Reset()
				report.Text(&got, look)
				if plain := escapes.ReplaceAllString(got.String(), ""); plain != string(want) {
					t.Errorf("%s: colours change more than the colour: %s", path, cmp.Diff(string(want), plain))
				}
			}
		}
	}
}
