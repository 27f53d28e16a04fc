// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// A slice's time line in an AdminComment:
//
//	START,LENGTH,MIB,PERMILLE,memory,gpu
//
// START is in seconds since 1970, LENGTH the seconds of a cell. Each of the two texts has a digit for each cell, from 0 to z (35),
// or - where nothing is known: memory in 35ths of MIB, and the share of the GPU's time in 35ths of PERMILLE thousandths. What is not 0 is 1 at least. There is no upper case: where only sacctmgr can write, none is left.
const (
	curveCells  = 60
	curveDigits = 36
	curveParts  = 6
	// maxCurveBytes bounds what is read: six numbers and texts are some 250 bytes.
	maxCurveBytes = 400
	// maxCurvesBytes is how long a comment with curves may become: they must not take the room of other nodes' figures.
	maxCurvesBytes = 20000
)

var errCurve = errors.New("not a time line")

// curveOf packs the time line of a slice; "" if there is none.
func curveOf(points []timeline.Point, start, end time.Time) string {
	from := start.Truncate(time.Second)
	intervals := timeline.Intervals(points, from)
	if len(intervals) == 0 || !end.After(from) {
		return ""
	}
	length := int64(math.Ceil(end.Sub(from).Seconds() / curveCells))
	count := int(math.Ceil(end.Sub(from).Seconds() / float64(length)))
	cells := timeline.Spread(intervals, from, from.Add(time.Duration(int64(count)*length)*time.Second), count)
	var mostMiB int64
	var most float64
	for _, cell := range cells {
		mostMiB, most = max(mostMiB, cell.UsedMiB), max(most, cell.Busy)
	}
	permille := int64(math.Ceil(1000 * most))
	var memory, gpu strings.Builder
	for _, cell := range cells {
		memory.WriteByte(digit(cell.Known, float64(cell.UsedMiB), float64(mostMiB)))
		gpu.WriteByte(digit(cell.Known, 1000*cell.Busy, float64(permille)))
	}
	return fmt.Sprintf("%d,%d,%d,%d,%s,%s", from.Unix(), length, mostMiB, permille, &memory, &gpu)
}

func digit(known bool, value, most float64) byte {
	if !known {
		return '-'
	}
	n := int64(0)
	if value > 0 && most > 0 {
		n = min(curveDigits-1, max(1, int64(math.Round((curveDigits-1)*value/most))))
	}
	return strconv.FormatInt(n, curveDigits)[0]
}

// Points is the slice's time line, as far as the comment has one.
func (s CommentSlice) Points() ([]timeline.Point, error) {
	if s.Curve == "" {
		return nil, nil
	}
	parts := strings.Split(s.Curve, ",")
	if len(s.Curve) > maxCurveBytes || len(parts) < curveParts {
		return nil, fmt.Errorf("%w: %d bytes in %d parts", errCurve, len(s.Curve), len(parts))
	}
	var numbers [4]int64 // start, length, MiB, permille
	for i := range numbers {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil || n < 0 || n > 1<<40 {
			return nil, fmt.Errorf("%w: %q", errCurve, parts[i])
		}
		numbers[i] = n
	}
	memory, gpu := parts[4], parts[5] // one of before 0.1.0 has a seventh part
	if len(memory) != len(gpu) || len(memory) > curveCells || numbers[1] == 0 || numbers[1] > 1<<30 || numbers[3] > 1000 {
		return nil, fmt.Errorf("%w: %d and %d cells of %d s", errCurve, len(memory), len(gpu), numbers[1])
	}
	var points []timeline.Point
	for i := range len(memory) {
		if memory[i] == '-' {
			continue
		}
		m, err1 := strconv.ParseInt(memory[i:i+1], curveDigits, 64)
		g, err2 := strconv.ParseInt(gpu[i:i+1], curveDigits, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%w: %w", errCurve, err)
		}
		points = append(points, timeline.Point{AtUnixS: numbers[0] + int64(i+1)*numbers[1], UsedMiB: numbers[2] * m / (curveDigits - 1),
			BusyMs: numbers[1] * numbers[3] * g / (curveDigits - 1)})
	}
	return points, nil
}

// withoutCurves drops the time lines of some nodes, for figures to have room.
func (c Comment) withoutCurves(nodes ...string) {
	for _, node := range nodes {
		for i := range c.Nodes[node] {
			c.Nodes[node][i].Curve = ""
		}
	}
}

// addCurves puts the record's time lines into its part.
func addCurves(slices []CommentSlice, rec usage.Record) {
	for i, d := range rec.Devices {
		slices[i].Curve = curveOf(d.Timeline, rec.Start, rec.End)
	}
}
