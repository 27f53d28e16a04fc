// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package picture draws a job's report as SVG: for each slice its memory with the limit, and its share of the GPU's time
// with the cap.
package picture

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/slurm-vgpu/slurm-vgpu/internal/jobreport"
)

const (
	width       = 20 * vg.Centimeter
	stripHeight = 5 * vg.Centimeter
	// maxSlices bounds the picture; a job of more slices has the first of them in it.
	maxSlices = 16
)

var (
	blue = color.NRGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 255}
	pale = color.NRGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 60}
	red  = color.NRGBA{R: 0xc0, G: 0x2a, B: 0x2a, A: 255}
	grey = color.NRGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 255}
)

// ErrNoTimeline says that there is nothing to draw.
var ErrNoTimeline = errors.New("no time line is known of any slice")

// drawn is a slice that has a time line, and the run that it is of.
type drawn struct {
	run   jobreport.Run
	slice jobreport.Slice
}

// maxReport is more than a report of many runs, nodes and slices takes.
const maxReport = 64 << 20

// Draw draws a report that comes as JSON, as `vgpuctl report --json` prints it.
func Draw(in io.Reader, out io.Writer, now time.Time, loc *time.Location) error {
	var report jobreport.Report
	if err := json.NewDecoder(io.LimitReader(in, maxReport)).Decode(&report); err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	report.Complete(now, loc)
	return SVG(out, report, now, loc)
}

// SVG draws a report that is Complete.
func SVG(out io.Writer, report jobreport.Report, now time.Time, loc *time.Location) error {
	var all []drawn
	for _, run := range report.Runs {
		for _, slice := range run.Slices {
			if len(slice.Cells()) > 0 && len(all) < maxSlices {
				all = append(all, drawn{run, slice})
			}
		}
	}
	if len(all) == 0 {
		return ErrNoTimeline
	}
	var strips [][]*plot.Plot
	for i, d := range all {
		memory, share, err := d.strips(now, loc)
		if err != nil {
			return fmt.Errorf("draw slice %d: %w", i, err)
		}
		memory.Title.Text = fmt.Sprintf("job %s on %s, %s", report.JobID, d.slice.Node, d.slice.Device)
		strips = append(strips, []*plot.Plot{memory}, []*plot.Plot{share})
	}
	canvas := vgsvg.New(width, vg.Length(len(strips))*stripHeight)
	tiles := draw.Tiles{Rows: len(strips), Cols: 1, PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: 2 * vg.Millimeter,
		PadRight: 4 * vg.Millimeter, PadY: 3 * vg.Millimeter}
	for i, row := range plot.Align(strips, tiles, draw.New(canvas)) {
		strips[i][0].Draw(row[0])
	}
	if _, err := canvas.WriteTo(out); err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}

func (d drawn) strips(now time.Time, loc *time.Location) (memory, share *plot.Plot, err error) {
	end := now
	if !d.run.Running() {
		end = d.run.End
	}
	var used, busy plotter.XYs
	for _, cell := range d.slice.Cells() {
		from, to := at(cell.From), at(cell.To)
		used = append(used, plotter.XY{X: from, Y: float64(cell.UsedMiB)}, plotter.XY{X: to, Y: float64(cell.UsedMiB)})
		busy = append(busy, plotter.XY{X: from, Y: 100 * cell.Busy}, plotter.XY{X: to, Y: 100 * cell.Busy})
	}
	memory, share = strip(d.run.Start, end, loc), strip(d.run.Start, end, loc)
	memory.Y.Label.Text = "memory, MiB"
	mostMiB, mostPercent := d.slice.Top()
	memory.Y.Max = 1.2 * mostMiB
	if err = curve(memory, used); err != nil {
		return nil, nil, err
	}
	spans := d.slice.Limits(d.run.Start, end)
	if err = level(memory, spans, func(s jobreport.Span) float64 { return float64(s.MemMiB) }, fmt.Sprintf("limit, %d MiB", d.slice.MemMiB)); err != nil {
		return nil, nil, err
	}
	share.Y.Label.Text = "GPU time, %"
	share.Y.Max = min(100, math.Ceil(1.2*mostPercent))
	if err = curve(share, busy); err != nil {
		return nil, nil, err
	}
	if name := fmt.Sprintf("cap, %d %%", d.slice.SMPercent); d.slice.Capped() || len(spans) > 1 {
		if !d.slice.Capped() {
			name = "no cap"
		}
		err = level(share, spans, func(s jobreport.Span) float64 {
			if s.SMPercent == 0 {
				return 100
			}
			return float64(s.SMPercent)
		}, name)
	}
	return memory, share, err
}

func at(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// strip is an empty plot over the time of the run.
func strip(from, to time.Time, loc *time.Location) *plot.Plot {
	p := plot.New()
	p.X.Min, p.X.Max, p.Y.Min = at(from), at(to), 0
	p.X.Tick.Marker = ticks{loc}
	p.Title.Padding = vg.Millimeter
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Y.Label.TextStyle} {
		style.Font.Variant, style.Font.Size = "Sans", vg.Points(9)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = grey, grey
	p.Add(grid)
	return p
}

// ticks stand at round times of day.
type ticks struct{ loc *time.Location }

const mostTicks = 8

var steps = []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour,
	6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour}

// Ticks makes a plot.Ticker of it.
func (t ticks) Ticks(low, high float64) (marks []plot.Tick) {
	step, format := steps[len(steps)-1].Seconds(), "2006-01-02"
	for _, s := range steps {
		if (high-low)/s.Seconds() <= mostTicks {
			step = s.Seconds()
			break
		}
	}
	switch {
	case step < 60:
		format = "15:04:05"
	case high-low < 24*3600:
		format = "15:04"
	case step < 24*3600:
		format = "Jan 2 15:04"
	}
	_, offset := time.Unix(int64(low), 0).In(t.loc).Zone()
	shift := math.Mod(float64(offset), step)
	for x := math.Ceil((low+shift)/step)*step - shift; x <= high; x += step {
		marks = append(marks, plot.Tick{Value: x, Label: time.Unix(int64(x), 0).In(t.loc).Format(format)})
	}
	return marks
}

// curve is a line, and what is below it filled.
func curve(p *plot.Plot, points plotter.XYs) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width, line.FillColor = blue, vg.Points(1.2), pale
	keep(p, line)
	return nil
}

// level is a dashed line over the whole time, in steps where the limit was changed, with its name at the end.
func level(p *plot.Plot, spans []jobreport.Span, of func(jobreport.Span) float64, name string) error {
	var points plotter.XYs
	for _, s := range spans {
		points = append(points, plotter.XY{X: at(s.From), Y: of(s)}, plotter.XY{X: at(s.To), Y: of(s)})
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width, line.Dashes = red, vg.Points(1.2), []vg.Length{vg.Points(5), vg.Points(3)}
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{points[len(points)-1]}, Labels: []string{name}})
	if err != nil {
		return err
	}
	style := &label.TextStyle[0]
	style.Color, style.XAlign, style.YAlign = red, draw.XRight, draw.YBottom
	style.Font.Variant, style.Font.Size = "Sans", vg.Points(9)
	label.Offset.X, label.Offset.Y = -vg.Millimeter, vg.Points(2)
	keep(p, line, label)
	return nil
}

// keep adds what shall not widen the axes.
func keep(p *plot.Plot, what ...plot.Plotter) {
	x, y := p.X, p.Y
	p.Add(what...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = x.Min, x.Max, y.Min, y.Max
}
