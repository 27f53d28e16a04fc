// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

var curveStart = time.Unix(1_700_000_000, 0)

// TestACurveIsNearWhatItWasMadeOf: cells of it, in 35ths of the largest.
func TestACurveIsNearWhatItWasMadeOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count, everyS := rapid.IntRange(1, timeline.MaxRecorded).Draw(t, "points"), rapid.Int64Range(1, 7200).Draw(t, "every")
		var points []timeline.Point
		var mostMiB, busyMs int64
		for i := range count {
			p := timeline.Point{AtUnixS: curveStart.Unix() + int64(i+1)*everyS, UsedMiB: rapid.Int64Range(0, 150000).Draw(t, "mib"),
				BusyMs: rapid.Int64Range(0, 1000*everyS).Draw(t, "busy")}
			points, mostMiB, busyMs = append(points, p), max(mostMiB, p.UsedMiB), busyMs+p.BusyMs
		}
		end := curveStart.Add(time.Duration(int64(count)*everyS) * time.Second)
		text := curveOf(points, curveStart, end)
		if len(text) > 260 || strings.ToLower(text) != text || strings.ContainsAny(text, "\"'`\\ ") {
			t.Fatalf("%d bytes: %s", len(text), text)
		}
		got, err := CommentSlice{Curve: text}.Points()
		if err != nil || len(got) == 0 {
			t.Fatalf("%s: %v, %v", text, got, err)
		}
		var most int64
		var sum float64
		for _, p := range got {
			most, sum = max(most, p.UsedMiB), sum+float64(p.BusyMs)
		}
		wall := end.Sub(curveStart).Seconds() * 1000
		if most != mostMiB || math.Abs(sum-float64(busyMs)) > 0.05*wall+1000 {
			t.Fatalf("%s: %d MiB and %.0f ms, want %d and %d of %.0f", text, most, sum, mostMiB, busyMs, wall)
		}
	})
}

func TestWhatIsNotNothingIsNotNothingInTheCurve(t *testing.T) {
	points := []timeline.Point{{AtUnixS: curveStart.Unix() + 1, UsedMiB: 100000, BusyMs: 1000}, {AtUnixS: curveStart.Unix() + 2, UsedMiB: 1, BusyMs: 1},
		{AtUnixS: curveStart.Unix() + 3}}
	text := curveOf(points, curveStart, curveStart.Add(4*time.Second))
	if want := "1700000000,1,100000,1000,z10-,z10-"; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if text := curveOf(nil, curveStart, curveStart.Add(time.Hour)); text != "" {
		t.Errorf("without points: %s", text)
	}
}

func TestWhatIsNoCurveIsAnError(t *testing.T) {
	long := strings.Repeat("0", 61)
	for _, text := range []string{"x", "1,2,3,4,5", "-1,1,1,1,0,0", "1,0,1,1,0,0", "1,1,1,1,0,00", "1,1,1,1,!,0", "1,1,1,1001,0,0",
		"1,1,99999999999999,1,0,0", "1,99999999999,1,1,0,0", fmt.Sprintf("1,1,1,1,%s,%s", long, long), strings.Repeat(",", 5) + strings.Repeat("0", 500)} {
		if points, err := (CommentSlice{Curve: text}).Points(); err == nil {
			t.Errorf("%s: %v", text, points)
		}
	}
	if points, err := (CommentSlice{Curve: "1,1,1,1,0,0,0"}).Points(); err != nil || len(points) != 1 {
		t.Errorf("with a seventh part, as an earlier build wrote it: %v, %v", points, err)
	}
}

// A comment that has no room for time lines has them of the first nodes, and the figures of all.
func TestFiguresGoBeforeCurves(t *testing.T) {
	rec := sample(7)
	rec.Start, rec.End = curveStart, curveStart.Add(time.Hour)
	device := rec.Devices[0]
	for i := range timeline.MaxRecorded {
		device.Timeline = append(device.Timeline, timeline.Point{AtUnixS: curveStart.Unix() + int64(15*(i+1)), UsedMiB: int64(i), BusyMs: int64(i)})
	}
	rec.Devices = []usage.Device{device, device, device, device, device, device, device, device}
	text, nodes, with := "", 0, 0
	for {
		rec.Node = fmt.Sprintf("n%d", nodes)
		merged, err := Merge(text, rec)
		if err != nil {
			break
		}
		if !Stands(merged, rec) {
			t.Fatalf("%s does not stand", rec.Node)
		}
		comment, err := ParseComment(merged)
		if err != nil {
			t.Fatal(err)
		}
		if comment.Nodes[rec.Node][0].Curve != "" {
			with++
		}
		if strings.Count(merged, `"curve"`) > 0 && len(merged) > MaxCommentBytes {
			t.Fatalf("%d bytes", len(merged))
		}
		text, nodes = merged, nodes+1
	}
	// Without time lines 8 slices are about 1 KiB.
	if with < 5 || nodes < 50 || len(text) > MaxCommentBytes {
		t.Errorf("%d nodes, %d with time lines, %d bytes", nodes, with, len(text))
	}
}
