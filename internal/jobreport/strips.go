// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/guptarohit/asciigraph"

	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

const (
	stripRows    = 6
	leastColumns = 40
	mostColumns  = 160
	axisColumns  = 7  // of the numbers before the axis
	labelColumns = 12 // in all that is no curve
)

// Cells are what is known of a slice over time; empty where there is no time line.
func (s Slice) Cells() []timeline.Cell { return s.cells }

// strips draws a slice's memory with its limit, and its share with its cap.
func (r Run) strips(out io.Writer, s Slice, look Look) {
	if s.Whole {
		return
	}
	end := r.end(look.Now)
	columns := min(max(look.Columns, leastColumns), mostColumns) - labelColumns
	cells := timeline.Spread(s.cells, r.Start, end, columns)
	if len(s.cells) == 0 || cells == nil {
		words := "no time line is known"
		if r.Running() {
			words += " yet: vgpud looks every ten seconds"
		}
		fmt.Fprintf(out, "%s %s: %s\n", s.Node, s.Device, words)
		return
	}
	memory, share := make([]float64, columns), make([]float64, columns)
	for i, cell := range cells {
		memory[i], share[i] = math.NaN(), math.NaN()
		if cell.Known {
			memory[i], share[i] = float64(cell.UsedMiB), 100*cell.Busy
		}
	}
	top, most := s.Top()
	limits, caps := make([]float64, columns), make([]float64, columns)
	spans := s.Limits(r.Start, end)
	for i, cell := range cells {
		for len(spans) > 1 && !spans[0].To.After(cell.From) {
			spans = spans[1:]
		}
		limits[i], caps[i] = float64(spans[0].MemMiB), float64(spans[0].SMPercent)
		if caps[i] == 0 {
			caps[i] = 100
		}
	}
	fmt.Fprintln(out)
	fmt.Fprintf(out, "%s %s: memory in MiB, limit %d%s\n", s.Node, s.Device, s.MemMiB, s.before())
	fmt.Fprintln(out, r.strip(memory, limits, top, end, look))
	switch {
	case s.MostPercent() < 100:
		fmt.Fprintf(out, "percent of the GPU's time, cap %d%s\n", s.SMPercent, s.before())
		most = min(100, max(most, float64(s.MostPercent())*stripRows/(stripRows-1))) // the cap lies on one
	case s.changed():
		fmt.Fprintf(out, "percent of the GPU's time, %s%s\n", capText(s.SMPercent), s.before())
	default:
		fmt.Fprintln(out, "percent of the GPU's time, no cap")
		caps = nil
	}
	fmt.Fprintln(out, r.strip(share, caps, most, end, look))
}

// before says that there was another limit.
func (s Slice) before() string {
	if s.changed() {
		return " at the end"
	}
	return ""
}

func capText(percent int) string {
	if percent == 0 {
		return "no cap"
	}
	return fmt.Sprintf("cap %d", percent)
}

// strip is a curve and a line at the limit; nil: there is none.
func (r Run) strip(curve, limits []float64, top float64, end time.Time, look Look) string {
	series := [][]float64{curve}
	colours := []asciigraph.AnsiColor{asciigraph.Blue}
	if limits != nil {
		// A later curve is drawn above the earlier one, so a curve at its limit is seen.
		series, colours = [][]float64{limits, curve}, []asciigraph.AnsiColor{asciigraph.Red, asciigraph.Blue}
	}
	options := []asciigraph.Option{asciigraph.Height(stripRows), asciigraph.LowerBound(0), asciigraph.UpperBound(top),
		asciigraph.YAxisValueFormatter(func(y float64) string { return fmt.Sprintf("%*.0f", axisColumns, y) }),
		asciigraph.XAxisRange(float64(r.Start.Unix()), float64(end.Unix())), asciigraph.XAxisTickCount(4),
		asciigraph.XAxisValueFormatter(func(at float64) string { return time.Unix(int64(at), 0).In(look.Loc).Format("15:04:05") })}
	if look.Colour {
		options = append(options, asciigraph.SeriesColors(colours...))
	}
	dotted := asciigraph.CharSet{Horizontal: "┄", VerticalLine: "┆", StartCap: "┄", EndCap: "┄"}
	if len(series) == 2 {
		options = append(options, asciigraph.SeriesChars(dotted, asciigraph.DefaultCharSet))
	}
	return asciigraph.PlotMany(series, options...)
}
